#include "serve/service/model_names.h"

#include <algorithm>

#include "lora/peft/adapter_name.h"

namespace choral::serve {
namespace {

// "base:name" or "base::name" -> "name"; empty: the model does not begin with that base.
std::string_view behind(std::string_view base, std::string_view model) {
  if (!model.starts_with(base)) return {};
  model.remove_prefix(base.size());
  if (model.size() < 2 || model.front() != ':') return {};
  model.remove_prefix(1);
  if (model.front() == ':') model.remove_prefix(1);
  return model;
}

}  // namespace

std::string_view adapter_named(std::string_view model, std::span<const std::string> base_names) {
  if (model.empty() || model == lora::kBaseName) return {};
  if (std::find(base_names.begin(), base_names.end(), model) != base_names.end()) return {};
  for (const auto& base : base_names) {
    if (const auto name = behind(base, model); !name.empty()) return name;
  }
  const auto name = behind(lora::kBaseName, model);
  return name.empty() ? model : name;
}

bool leaves_adapter_open(std::string_view model, std::span<const std::string> base_names) {
  if (model.empty()) return true;
  return model != lora::kBaseName && std::find(base_names.begin(), base_names.end(), model) != base_names.end();
}

}  // namespace choral::serve
