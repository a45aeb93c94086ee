// Bodies of llama.cpp's own /completion, /infill and /embedding: values, read and checked as those of OpenAI's routes are. For
// .cc files only, as prompt_parts.h. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/native/fill_prompt.h"
#include "serve/native/prompt_parts.h"
#include "serve/openai/calls.h"

namespace choral::serve {

struct NativeCall : CallHead {
  std::vector<PromptParts> prompts;          // each gets n answers; of /infill none
  std::optional<Gap> gap;                    // of /infill
  std::vector<std::string> response_fields;  // the paths of what the answer has; empty: everything
  bool no_tokens = false;                    // n_predict 0: the prompt alone is computed
  bool return_tokens = false;
  std::vector<std::string> warnings;  // of what is taken and has no effect
};

struct NativeEmbeddingCall {
  std::string model;
  Request request;  // how the inputs are read
  std::vector<PromptParts> inputs;
  int norm = 2;  // 0: the largest value, as a number of 16 bits; else of the sum of powers that the vector is made 1 by
};

Result<NativeCall> read_native_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes);
Result<NativeCall> read_infill_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes);
Result<NativeEmbeddingCall> read_native_embedding_call(std::string_view body, BodyNotes& notes);

std::string native_schema();
std::string infill_schema();
std::string native_embedding_schema();

}  // namespace choral::serve
