// Bodies of vLLM's /classify and /pooling: what the model makes of a text as a whole. Values, read and checked. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/openai/calls.h"

namespace choral::serve {

struct PooledCall : EmbeddingCall {
  std::optional<bool> wants_classes = {};  // absent: what the model gives, its embedding or its classes
  bool use_activation = true;              // of classes: probabilities; false: logits
};

Result<PooledCall> read_classify_call(std::string_view body, BodyNotes& notes);
Result<PooledCall> read_pooling_call(std::string_view body, BodyNotes& notes);

std::string classify_schema();
std::string pooling_schema();

}  // namespace choral::serve
