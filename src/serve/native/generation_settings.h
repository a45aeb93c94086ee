// llama.cpp's `generation_settings`: how an answer was sampled, by its names; what is not served is told as what it is, off. For
// .cc files only (serve/openai/json.h). Pure.
#pragma once

#include <span>

#include "serve/native/native_call.h"
#include "serve/openai/json.h"

namespace choral::serve {

// `adapter_ids`: llama.cpp's numbers of the request's adapters.
Json generation_settings(const NativeCall& call, std::span<const int32_t> adapter_ids);

}  // namespace choral::serve
