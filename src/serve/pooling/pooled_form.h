// How /classify and /pooling are answered. For .cc files only, as the forms of the other routes. A form serves one request; not
// thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/openai/answer_form.h"
#include "serve/pooling/pooled_call.h"

namespace choral::serve {

// Of a head of one class the sigmoid, which says whether; of several their softmax, which says which.
std::vector<float> class_probabilities(std::span<const float> logits);

std::unique_ptr<AnswerForm> make_classify_form(AnswerHead head, const PooledCall& call, std::vector<std::string> labels);
std::unique_ptr<AnswerForm> make_pooling_form(AnswerHead head, const PooledCall& call);

}  // namespace choral::serve
