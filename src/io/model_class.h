// Names of transformers' classes. Of a family: …ForCausalLM for text, …ForSequenceClassification for classes, …Model without a
// head; "Text" stands in front of some. Pure.
#pragma once

#include <string_view>

namespace choral::io {

enum class ClassKind { kText, kClasses, kNoHead, kOther };

struct ModelClass {
  std::string_view family;  // "Qwen3"; the whole name of another kind
  ClassKind kind = ClassKind::kOther;
};
ModelClass model_class(std::string_view name);

}  // namespace choral::io
