#include "lora/peft/lora_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/nearest_name.h"
#include "base/printable.h"
#include "lora/peft/fused_experts.h"

namespace choral::lora {

LoRALoader::LoRALoader(const PEFTHelper& peft, std::span<const LoRATarget> targets, const LoRALoadOptions& options,
                       std::string source, bool shapes_only)
    : peft_(peft), targets_(targets), options_(options), source_(std::move(source)), shapes_only_(shapes_only) {}

void LoRALoader::index_targets(std::span<const NamedTensor> tensors) {
  const auto renamed = [](const LoRATarget& target) { return renamed_in_5(target.name) != target.name; };
  const auto of_5 = [](const NamedTensor& tensor) { return tensor.name.find(".mlp.") != std::string::npos; };
  as_in_5_ = std::any_of(targets_.begin(), targets_.end(), renamed) && std::any_of(tensors.begin(), tensors.end(), of_5);
  for (const auto& tensor : tensors) {
    const std::string_view name = without_peft_prefix(tensor.name);
    if (of_whole_model_.empty() && io::text_half_name(name) != name) of_whole_model_ = name;
  }
  for (const auto& target : targets_) {
    for (size_t i = 0; i < target.members.size(); ++i) {
      places_.emplace(spelled(target, target.members[i].name),
                      Place{&target, static_cast<int>(i), target.members[i].out, target.in});
    }
    places_.emplace(spelled(target, target.name), Place{&target, target.members.size() > 1 ? -1 : 0, target.out(), target.in});
  }
}

int64_t LoRALoader::count_experts(std::string_view experts, std::string_view parameter) const {
  int64_t count = 0;
  while (places_.contains(fmt::format("{}.{}.{}", experts, count, parameter))) ++count;
  return count;
}

Result<LoRAModel> LoRALoader::load(std::span<const NamedTensor> tensors) {
  index_targets(tensors);
  if (tensors.empty()) return corrupt("{} holds no tensor", source_);
  const auto count = [this](std::string_view experts, std::string_view parameter, int64_t) {
    return count_experts(experts, parameter);
  };
  const auto of_experts = split_fused_experts(tensors, peft_.target_parameters, count, shapes_only_, problems_);
  const Modules modules = sort_tensors(of_experts);
  for (const auto& [name, module] : modules) take_module(name, module);
  check_complete(modules);
  check_saved(modules);
  check_parameters();
  check_token_config();
  check_token_rows();
  check_own_tokens();
  check_activation();
  if (problems_.empty() && model_.loras_.empty() && model_.replaced_weights_.empty() && model_.replaced_biases_.empty() &&
      model_.trainable_tokens_.empty() && model_.embeddings_tensors_.empty()) {
    problems_.add(invalid_argument("no module of the model is adapted by it"));
  }
  CHORAL_RETURN_IF_ERROR(problems_.to_status(source_));

  model_.id_ = options_.lora_model_id;
  for (const auto& [name, layer] : model_.loras_) model_.rank_ = std::max(model_.rank_, layer.rank);
  if (peft_.ranks_known) {
    const double divisor = peft_.use_rslora ? std::sqrt(static_cast<double>(peft_.r)) : static_cast<double>(peft_.r);
    model_.scaling_ = static_cast<float>(peft_.lora_alpha / divisor);
  } else if (!model_.loras_.empty()) {
    model_.scaling_ = model_.loras_.begin()->second.scaling;
  }
  model_.alora_invocation_tokens_ = peft_.alora_invocation_tokens;
  model_.notes_.insert(model_.notes_.begin(), peft_.notes.begin(), peft_.notes.end());
  return std::move(model_);
}

// Keys that lie before the activation are the base's, but whoever looks at them later applies its own pair.
void LoRALoader::check_activation() {
  if (peft_.alora_invocation_tokens.empty()) return;
  for (const auto& target : targets_) {
    if (!target.absorbed || !model_.loras_.contains(target.name)) continue;
    return problems_.add(unsupported(
        "alora_invocation_tokens: '{}' is adapted, which this model computes as a part of its queries: it would act on "
        "the tokens before the activation too; leave it out of target_modules",
        target.name));
  }
}

// vLLM's files of new tokens call the layer by what it does.
std::optional<TensorName> LoRALoader::name_of(const NamedTensor& tensor) const {
  for (const auto& [name, kind] : {std::pair(kInputEmbeddings, TargetKind::kEmbedding), {kOutputEmbeddings, TargetKind::kHead}}) {
    if (tensor.name != name) continue;
    for (const auto& target : targets_) {
      if (target.kind == kind) return TensorName{target.name, TensorPart::kNewRows};
    }
  }
  return parse_tensor_name(tensor.name);
}

// PEFT saves under two names a resized embedding that modules_to_save names, and with bias = all a bias of what that names.
bool LoRALoader::is_saved_twice(const NamedTensor& a, const NamedTensor& b) const {
  const auto has_other_name = [](const NamedTensor& tensor) {
    return tensor.name.ends_with(".modules_to_save.weight") || tensor.name.ends_with(".modules_to_save.bias");
  };
  const TensorView &x = a.tensor.view, &y = b.tensor.view;
  if (has_other_name(a) == has_other_name(b)) return false;
  if (x.dtype != y.dtype || !(x.shape == y.shape)) return false;
  return shapes_only_ || std::memcmp(x.data, y.data, x.size_bytes()) == 0;
}

LoRALoader::Modules LoRALoader::sort_tensors(std::span<const NamedTensor> tensors) {
  Modules modules;
  std::vector<std::string> unexpected;
  for (const auto& tensor : tensors) {
    const auto name = name_of(tensor);
    const auto place = name ? places_.find(name->module) : places_.end();
    if (place == places_.end()) {
      unexpected.push_back(tensor.name);
      continue;
    }
    Module& module = modules[name->module];
    module.place = &place->second;
    const NamedTensor*& part = module.parts[static_cast<size_t>(name->part)];
    if (part != nullptr) {
      if (is_saved_twice(*part, tensor)) continue;
      problems_.add(corrupt("'{}' and '{}' are both the {} of one module; a file holds one adapter", printable(part->name),
                            printable(tensor.name), part_tail(name->part)));
      continue;
    }
    part = &tensor;
  }
  report_unexpected(unexpected, tensors.size());
  return modules;
}

std::string LoRALoader::nearest(std::string_view name) const {
  std::string_view stem = name.substr(0, 256);
  if (stem.starts_with("base_model.model.")) stem.remove_prefix(17);
  const auto parsed = parse_tensor_name(stem);
  const std::string module = parsed ? parsed->module : std::string(stem);
  std::vector<std::string> candidates;
  for (const auto& [place, unused] : places_) {
    if (place.size() <= 2 * module.size() && module.size() <= 2 * place.size()) candidates.push_back(place);
  }
  return nearest_name(module, candidates);
}

void LoRALoader::report_unexpected(const std::vector<std::string>& names, size_t all_tensors) {
  if (names.empty()) return;
  constexpr size_t kNamed = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(names[i]));
    if (i >= 3) continue;  // a few hints do; the search is not for free
    if (const std::string hint = nearest(names[i]); !hint.empty()) list += fmt::format(" (nearest: '{}')", printable(hint));
  }
  if (names.size() > kNamed) list += fmt::format(" and {} more", names.size() - kNamed);
  if (names.size() == all_tensors) {
    std::string expected;
    for (const auto& target : targets_.subspan(0, std::min<size_t>(targets_.size(), 3))) {
      if (!target.members.empty()) expected += fmt::format("{}'{}'", expected.empty() ? "" : ", ", target.members[0].name);
    }
    problems_.add(invalid_argument(
        "none of its {} tensors belongs to this model: {}; the model has {} …; the adapter says it was made for '{}'",
        all_tensors, list, expected, printable(peft_.base_model_name_or_path)));
    return;
  }
  problems_.add(invalid_argument("{} tensors belong to no module of the model that can be adapted: {}", names.size(), list));
}

// PEFT would leave a module without tensors at its initial values: an adapter that is not the one that was trained.
void LoRALoader::check_complete(const Modules& modules) {
  if (!peft_.targets_known) return;
  std::vector<std::string> missing;
  // Newer transformers hold experts as parameters, of which target_modules knows nothing.
  const bool has_experts = std::any_of(modules.begin(), modules.end(), [](const auto& m) { return is_of_expert(m.first); });
  const bool as_parameters = !has_experts || !peft_.target_parameters.empty();
  bool leaves_experts = false;
  for (const auto& target : targets_) {
    const std::string whole = spelled(target, target.name);
    if (target.kind == TargetKind::kNorm || modules.contains(whole)) continue;
    for (const auto& member : target.members) {
      const std::string name = spelled(target, member.name);
      if (const auto at = modules.find(name); at != modules.end()) {
        if (at->second[TensorPart::kLoraA] || at->second[TensorPart::kEmbeddingA] || at->second[TensorPart::kLoraB]) continue;
      }
      const auto wanted = peft_.targets(as_trained(name), target.kind);
      if (!wanted.ok()) return problems_.add(wanted.status());
      if (!*wanted) continue;
      if (as_parameters && is_of_expert(name) && !names_parameter_of(peft_.target_parameters, name)) {
        leaves_experts = true;
      } else {
        missing.push_back(name);
      }
    }
    const bool stacked = target.members.size() > 1;
    if (stacked && names_parameter_of(peft_.target_parameters, whole)) missing.push_back(whole);
  }
  if (leaves_experts) {
    model_.notes_.push_back("target_modules does not reach experts: the file was made where they are parameters");
  }
  if (missing.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(missing.size(), 8); ++i) list += fmt::format("{}'{}'", i == 0 ? "" : ", ", missing[i]);
  if (missing.size() > 8) list += fmt::format(" and {} more", missing.size() - 8);
  problems_.add(
      corrupt("target_modules names {} modules that have no tensors: {}; the file is incomplete", missing.size(), list));
}

void LoRALoader::check_parameters() {
  for (const auto& parameter : peft_.target_parameters) {
    const bool known = std::any_of(places_.begin(), places_.end(), [&](const auto& place) {
      return names_parameter_of({&parameter, 1}, place.first);
    });
    if (known) continue;
    // Where experts are parameters PEFT turns target_modules into these three, whatever the router is called.
    const auto is_within_gate = [](const auto& place) { return place.first.find(".mlp.gate.") != std::string::npos; };
    if (parameter == "gate.weight" && std::any_of(places_.begin(), places_.end(), is_within_gate)) {
      model_.notes_.push_back("target_parameters names 'gate.weight', which this model has not; PEFT leaves it out too");
      continue;
    }
    problems_.add(unsupported("target_parameters names '{}', which is no parameter of this model that can be adapted",
                              printable(parameter)));
  }
}

void LoRALoader::check_saved(const Modules& modules) {
  int hints = 3;  // the search is not for free
  for (const auto& wanted : peft_.modules_to_save) {
    bool named = false;
    for (const auto& [name, place] : places_) {
      if (!PEFTHelper::is_saved_by(wanted, as_trained(name))) continue;
      // A stacked target's own name counts only when the file speaks of it.
      if (place.member < 0 && !modules.contains(name)) continue;
      if (place.member >= 0 && modules.contains(spelled(*place.target, place.target->name)) && place.target->members.size() > 1)
        continue;
      named = true;
      const auto at = modules.find(name);
      if (at == modules.end() || at->second[TensorPart::kWeight] == nullptr) {
        problems_.add(
            corrupt("modules_to_save names '{}', whose weight '{}.weight' is not in the file", printable(wanted), name));
      }
    }
    if (!named && !peft_.adds_by_itself(wanted)) {
      const std::string hint = hints-- > 0 ? nearest(wanted) : std::string();
      problems_.add(unsupported("modules_to_save names '{}', which is no module of this model that can be replaced{}",
                                printable(wanted), hint.empty() ? "" : fmt::format(" (nearest: '{}')", hint)));
    }
  }
}

}  // namespace choral::lora
