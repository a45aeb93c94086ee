#include "io/model_class.h"

namespace choral::io {
namespace {

struct Ending {
  std::string_view text;
  ClassKind kind;
};
constexpr Ending kEndings[] = {{"ForCausalLM", ClassKind::kText},
                               {"TextForSequenceClassification", ClassKind::kClasses},
                               {"ForSequenceClassification", ClassKind::kClasses},
                               {"TextModel", ClassKind::kNoHead},
                               {"Model", ClassKind::kNoHead}};

}  // namespace

ModelClass model_class(std::string_view name) {
  for (const auto& [text, kind] : kEndings) {
    if (name.size() > text.size() && name.ends_with(text)) return {name.substr(0, name.size() - text.size()), kind};
  }
  return {name, ClassKind::kOther};
}

}  // namespace choral::io
