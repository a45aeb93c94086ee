// What OpenAI's answers call system_fingerprint: which model answered, in which form, by which arithmetic. As long as it is the
// same, so are the bits of an answer with a seed; another model, quantisation, CPU level or version of the program has another.
// What the model is called is no part of it. It shows none of what it is made of. Pure.
#pragma once

#include <string>

#include "choral/llm.h"

namespace choral::serve {

std::string system_fingerprint(const ModelInfo& model);  // "fp_" and ten hexadecimal digits

}  // namespace choral::serve
