// The rules for the tensors of one module.
#include <algorithm>

#include "base/printable.h"
#include "kernels/quant/dequantise.h"
#include "lora/peft/lora_loader.h"

namespace choral::lora {

std::string_view kind_name(TargetKind kind) {
  switch (kind) {
    case TargetKind::kLinear: return "a linear layer";
    case TargetKind::kEmbedding: return "the embedding";
    case TargetKind::kHead: return "the output head";
    case TargetKind::kNorm: return "a norm";
  }
  return "a module";
}

bool LoRALoader::expect_norm_shape(const NamedTensor& tensor, const Place& place, const std::string& module) {
  const int64_t heads = place.target->heads;
  return heads == 1 ? expect_shape(tensor, {place.in}, module, "(size)")
                    : expect_shape(tensor, {heads, place.in / heads}, module, "(heads, size of one)");
}

bool LoRALoader::expect_shape(const NamedTensor& tensor, std::initializer_list<int64_t> wanted, const std::string& module,
                              std::string_view meaning) {
  const Shape shape{wanted};
  if (tensor.tensor.view.shape == shape) return true;
  problems_.add(invalid_argument("'{}' has shape {}; {} of '{}' in this model needs {} {}", printable(tensor.name),
                                 tensor.tensor.view.shape.to_string(), part_tail(name_of(tensor)->part), module,
                                 shape.to_string(), meaning));
  return false;
}

bool LoRALoader::expect_finite(const NamedTensor& tensor) {
  if (shapes_only_) return true;
  const auto at = first_non_finite(tensor.tensor.view);
  if (!at) return true;
  problems_.add(corrupt("'{}' has a NaN or an infinity (element {}); the training diverged, or the cast to {} overflowed",
                        printable(tensor.name), *at, dtype_name(tensor.tensor.view.dtype)));
  return false;
}

bool LoRALoader::expect_rank(const std::string& name, int64_t rank) {
  if (rank > options_.config.max_lora_rank) {
    problems_.add(too_large("'{}' has rank {}, over the limit of {}; {}", name, rank, options_.config.max_lora_rank,
                            LoRAConfig::rank_advice(rank)));
    return false;
  }
  if (!peft_.ranks_known) return true;
  const auto wanted = peft_.rank_for(as_trained(name));
  if (!wanted.ok()) {
    problems_.add(wanted.status());
    return false;
  }
  if (*wanted == rank) return true;
  problems_.add(
      invalid_argument("'{}' has rank {} in the file and {} by r and rank_pattern; config and tensors belong to "
                       "different adapters",
                       name, rank, *wanted));
  return false;
}

void LoRALoader::take_module(const std::string& name, const Module& module) {
  const NamedTensor* a = module[TensorPart::kLoraA];
  const NamedTensor* b = module[TensorPart::kLoraB];
  const NamedTensor* embedding_a = module[TensorPart::kEmbeddingA];
  const NamedTensor* embedding_b = module[TensorPart::kEmbeddingB];
  if ((a == nullptr) != (b == nullptr)) {
    const NamedTensor* there = a != nullptr ? a : b;
    problems_.add(corrupt("'{}' has no {} beside it", printable(there->name), a != nullptr ? "lora_B" : "lora_A"));
  } else if ((embedding_a == nullptr) != (embedding_b == nullptr)) {
    const NamedTensor* there = embedding_a != nullptr ? embedding_a : embedding_b;
    problems_.add(corrupt("'{}' has no {} beside it", printable(there->name),
                          embedding_a != nullptr ? "lora_embedding_B" : "lora_embedding_A"));
  } else if (a != nullptr && embedding_a != nullptr) {
    problems_.add(corrupt("'{}' has lora_A and lora_embedding_A", name));
  } else if (a != nullptr) {
    take_pair(name, module, a, b);
  } else if (embedding_a != nullptr) {
    take_embedding_pair(name, module);
  } else {
    for (const auto part : {TensorPart::kLoraBias, TensorPart::kMagnitude}) {
      if (const NamedTensor* tensor = module[part]) {
        problems_.add(corrupt("'{}' belongs to a low-rank pair that is not in the file", printable(tensor->name)));
      }
    }
  }
  const bool adapted = a != nullptr || embedding_a != nullptr;
  if (const NamedTensor* copy = module[TensorPart::kBaseWeight]) check_frozen_copy(name, module, *copy);
  if (const NamedTensor* weight = module[TensorPart::kWeight]) {
    if (adapted) {
      // Old PEFT wrote the base's weight without ".base_layer".
      check_frozen_copy(name, module, *weight);
    } else {
      take_replacement(name, module);
    }
  }
  take_bias(name, module);
  if (const NamedTensor* idle = module[TensorPart::kIdleBias]) {
    model_.notes_.push_back(fmt::format(
        "'{}': of the module that modules_to_save stands in for; PEFT does not compute with it either", printable(idle->name)));
  }
  if (module[TensorPart::kChoiceBias]) check_selection_bias(name, module);
  if (module[TensorPart::kNewRows]) take_new_embeddings(name, module);
  if (module[TensorPart::kTokenRows]) take_token_rows(name, module);
}

void LoRALoader::take_pair(const std::string& name, const Module& module, const NamedTensor* a, const NamedTensor* b) {
  const Place& place = *module.place;
  if (place.target->kind == TargetKind::kEmbedding || place.target->kind == TargetKind::kNorm) {
    return problems_.add(unsupported("'{}': {} takes no lora_A and lora_B{}", printable(a->name), kind_name(place.target->kind),
                                     place.target->kind == TargetKind::kEmbedding ? " (but lora_embedding_A and _B)" : ""));
  }
  const auto targeted = peft_.targets(as_trained(name), place.target->kind);
  if (!targeted.ok()) return problems_.add(targeted.status());
  // Under "all-linear" the saved list leaves the head out, but a file that has it was trained with it.
  if (!*targeted) {
    return problems_.add(
        invalid_argument("'{}' is adapted in the file, but the config's target_modules (with exclude_modules, "
                         "modules_to_save and layers_to_transform) leaves '{}' out",
                         printable(a->name), name));
  }
  const Shape& shape = a->tensor.view.shape;
  const int64_t rank = shape.rank() == 2 ? shape[0] : 0;
  bool good = expect_shape(*a, {rank > 0 ? rank : peft_.r, place.in}, name, "(rank, inputs)");
  // A head's B goes on with the adapter's own tokens.
  const Shape& b_shape = b->tensor.view.shape;
  const bool longer = place.target->kind == TargetKind::kHead && b_shape.rank() == 2 && b_shape[0] > place.out;
  good = good && expect_shape(*b, {longer ? b_shape[0] : place.out, rank}, name, "(outputs, rank)");
  good = good && expect_rank(name, rank) && expect_finite(*a) && expect_finite(*b);
  const NamedTensor* bias = module[TensorPart::kLoraBias];
  const NamedTensor* magnitude = module[TensorPart::kMagnitude];
  if ((bias != nullptr) != peft_.lora_bias) {
    good = false;
    problems_.add(invalid_argument("lora_bias is {} in the config, but '{}' {} lora_B.bias in the file", peft_.lora_bias, name,
                                   bias != nullptr ? "has" : "has no"));
  }
  if ((magnitude != nullptr) != peft_.use_dora) {
    good = false;
    problems_.add(invalid_argument("use_dora is {} in the config, but '{}' {} lora_magnitude_vector in the file", peft_.use_dora,
                                   name, magnitude != nullptr ? "has" : "has no"));
  }
  if (bias != nullptr) good = expect_shape(*bias, {place.out}, name, "(outputs)") && expect_finite(*bias) && good;
  if (magnitude != nullptr) good = expect_shape(*magnitude, {place.out}, name, "(outputs)") && expect_finite(*magnitude) && good;
  if (!good) return;

  auto layer = scaled_pair(name, a->tensor, b->tensor);
  if (!layer) return;
  if (bias != nullptr) layer->bias = bias->tensor;
  if (magnitude != nullptr) layer->magnitude = magnitude->tensor;
  add_layer(name, place, std::move(*layer));
}

std::optional<LoRALayerWeights> LoRALoader::scaled_pair(const std::string& name, const AdapterTensor& a, const AdapterTensor& b) {
  const int64_t rank = a.view.shape[0];
  const auto alpha = peft_.alpha_for(as_trained(name));
  const auto scaling = peft_.scaling_for(as_trained(name), rank);
  if (!alpha.ok() || !scaling.ok()) {
    problems_.add(alpha.ok() ? scaling.status() : alpha.status());
    return std::nullopt;
  }
  LoRALayerWeights layer;
  layer.rank = rank;
  layer.lora_alpha = *alpha;
  layer.scaling = static_cast<float>(*scaling);
  layer.lora_a = a;
  layer.lora_b = b;
  return layer;
}

void LoRALoader::add_layer(const std::string& name, const Place& place, LoRALayerWeights layer) {
  if (place.member >= 0) {
    const std::string& member = place.target->members[place.member].name;
    layer.module_name = member;
    if (!model_.loras_.emplace(member, std::move(layer)).second) {
      problems_.add(corrupt("'{}' is adapted twice: by its own tensors and by those of '{}'", member, place.target->name));
    }
    return;
  }
  int64_t begin = 0;
  for (size_t i = 0; i < place.target->members.size(); ++i) {
    const int64_t out = place.target->members[i].out;
    LoRALayerWeights part = layer;
    part.lora_b = layer.lora_b.rows(begin, out);
    if (!layer.bias.empty()) part.bias = layer.bias.rows(begin, out);
    if (!layer.magnitude.empty()) part.magnitude = layer.magnitude.rows(begin, out);
    part.shares_lora_a = true;
    Place member = place;
    member.member = static_cast<int>(i);
    add_layer(name, member, std::move(part));
    begin += out;
  }
}

void LoRALoader::take_embedding_pair(const std::string& name, const Module& module) {
  const Place& place = *module.place;
  const NamedTensor& a = *module[TensorPart::kEmbeddingA];
  const NamedTensor& b = *module[TensorPart::kEmbeddingB];
  if (place.target->kind != TargetKind::kEmbedding) {
    return problems_.add(
        unsupported("'{}': {} takes no lora_embedding_A and _B", printable(a.name), kind_name(place.target->kind)));
  }
  if (peft_.use_dora) {
    return problems_.add(unsupported("'{}': DoRA on an embedding is not supported; train the embedding as plain LoRA", name));
  }
  const auto targeted = peft_.targets(as_trained(name), place.target->kind);
  if (!targeted.ok()) return problems_.add(targeted.status());
  if (!*targeted) {
    return problems_.add(invalid_argument("'{}' is adapted in the file, but the config's target_modules leaves '{}' out",
                                          printable(a.name), name));
  }
  const Shape& shape = a.tensor.view.shape;
  const int64_t rank = shape.rank() == 2 ? shape[0] : 0;
  const int64_t vocabulary = rank > 0 ? std::max(shape[1], place.out) : place.out;  // with the adapter's own tokens
  bool good = expect_shape(a, {rank > 0 ? rank : peft_.r, vocabulary}, name, "(rank, vocabulary)") &&
              expect_shape(b, {place.in, rank}, name, "(width, rank)") && expect_rank(name, rank) && expect_finite(a) &&
              expect_finite(b);
  if (module[TensorPart::kMagnitude] != nullptr) {
    good = false;
    problems_.add(invalid_argument("use_dora is false in the config, but '{}' has lora_magnitude_vector in the file", name));
  }
  if (const NamedTensor* bias = module[TensorPart::kLoraBias]) {
    good = false;
    problems_.add(unsupported("'{}': an embedding has no lora_bias", printable(bias->name)));
  }
  if (peft_.ensure_weight_tying) {
    good = false;
    problems_.add(
        unsupported("ensure_weight_tying: an adapter of '{}' that acts on the tied output head as well is not supported; "
                    "name lm_head in target_modules instead",
                    name));
  }
  if (!good) return;
  auto layer = scaled_pair(name, a.tensor, b.tensor);
  if (!layer) return;
  layer->is_embedding = true;
  add_layer(name, place, std::move(*layer));
}

// PEFT saves the base's own weight beside an adapter of an embedding. Only its rows of tokens that the base does not have say
// anything new; of the others the shape is checked.
void LoRALoader::check_frozen_copy(const std::string& name, const Module& module, const NamedTensor& tensor) {
  const Place& place = *module.place;
  const bool norm = place.target->kind == TargetKind::kNorm;
  const int64_t extra = rows_beyond(place, tensor.tensor.view.shape);
  if (extra > 0 ? !take_own_rows(name, module, tensor, extra)
                : !(norm ? expect_norm_shape(tensor, place, name)
                         : expect_shape(tensor, {place.out, place.in}, name, "(rows, columns)"))) {
    return;
  }
  if (!norm) add_by_member(model_.frozen_copies_, name, place, extra > 0 ? tensor.tensor.rows(0, place.out) : tensor.tensor);
  model_.notes_.push_back(
      fmt::format("'{}': a frozen copy of the base's weight; the base's own is used", printable(tensor.name)));
}

void LoRALoader::take_replacement(const std::string& name, const Module& module) {
  const Place& place = *module.place;
  const NamedTensor& weight = *module[TensorPart::kWeight];
  const TargetKind kind = place.target->kind;
  if (place.target->absorbed) {
    return problems_.add(
        unsupported("'{}': this model computes '{}' as a part of its queries and outputs, so that its weight cannot "
                    "be another one for an adapter; adapt it by a low-rank pair",
                    printable(weight.name), name));
  }
  AdapterTensor kept = weight.tensor;
  if (kind == TargetKind::kNorm) {
    if (!expect_norm_shape(weight, place, name)) return;
  } else {
    const int64_t extra = rows_beyond(place, weight.tensor.view.shape);
    if (extra > 0) {
      if (!take_own_rows(name, module, weight, extra)) return;
      kept = weight.tensor.rows(0, place.out);
    } else if (!expect_shape(weight, {place.out, place.in}, name, "(rows, columns)")) {
      return;
    }
  }
  if (!expect_finite(weight)) return;
  if (peft_.ensure_weight_tying && (kind == TargetKind::kEmbedding || kind == TargetKind::kHead)) {
    return problems_.add(
        unsupported("ensure_weight_tying: replacing '{}' and its tied partner together is not supported; save both "
                    "through modules_to_save",
                    name));
  }
  if (peft_.targets_known && !peft_.saves(as_trained(name))) {
    model_.notes_.push_back(fmt::format("'{}': not named by modules_to_save, but PEFT loads it into the model, so it is used",
                                        printable(weight.name)));
    if (kind == TargetKind::kEmbedding || kind == TargetKind::kHead) model_.saved_layers_.insert(name);
  }
  add_by_member(model_.replaced_weights_, name, place, kept);
}

void LoRALoader::add_by_member(std::map<std::string, AdapterTensor, std::less<>>& to, const std::string& name, const Place& place,
                               const AdapterTensor& tensor) {
  int64_t begin = 0;
  for (size_t i = 0; i < place.target->members.size(); ++i) {
    if (place.member >= 0 && i != static_cast<size_t>(place.member)) continue;
    const auto& member = place.target->members[i];
    if (!to.emplace(member.name, place.member >= 0 ? tensor : tensor.rows(begin, member.out)).second) {
      problems_.add(corrupt("'{}' stands in the file twice: by its own tensor and in that of '{}'", member.name, name));
    }
    begin += member.out;
  }
}

void LoRALoader::take_bias(const std::string& name, const Module& module) {
  const Place& place = *module.place;
  for (const auto part : {TensorPart::kBaseBias, TensorPart::kBias}) {
    const NamedTensor* tensor = module[part];
    if (tensor == nullptr) continue;
    const bool trained = peft_.bias != PEFTBias::kNone || (part == TensorPart::kBias && peft_.saves(as_trained(name)));
    const bool has_vocabulary = place.target->kind == TargetKind::kEmbedding || place.target->kind == TargetKind::kHead;
    if (!trained) {
      if (part == TensorPart::kBaseBias && has_vocabulary) {
        model_.notes_.push_back(fmt::format("'{}': a frozen copy of the base's bias", printable(tensor->name)));
      } else {
        problems_.add(invalid_argument("'{}' is a trained bias, but the config says bias = none", printable(tensor->name)));
      }
      continue;
    }
    if (!options_.config.bias_enabled) {
      problems_.add(unsupported("'{}': adapters with biases are switched off (bias_enabled)", printable(tensor->name)));
      continue;
    }
    if (place.target->kind == TargetKind::kEmbedding) {
      problems_.add(unsupported("'{}': {} of this model has no bias", printable(tensor->name), kind_name(place.target->kind)));
      continue;
    }
    if (!place.target->base_bias || place.target->base_bias().empty()) {
      problems_.add(invalid_argument("'{}': '{}' has no bias in this model", printable(tensor->name), name));
      continue;
    }
    if (!expect_shape(*tensor, {place.out}, name, "(outputs)") || !expect_finite(*tensor)) continue;
    add_by_member(model_.replaced_biases_, name, place, tensor->tensor);
  }
}

// PEFT saves it with a router that modules_to_save names. Training does not change it: gradients do not reach it.
void LoRALoader::check_selection_bias(const std::string& name, const Module& module) {
  const NamedTensor& tensor = *module[TensorPart::kChoiceBias];
  const auto& base_bias = module.place->target->selection_bias;
  if (!base_bias) {
    return problems_.add(invalid_argument("'{}': '{}' chooses without such a bias in this model", printable(tensor.name), name));
  }
  if (!expect_shape(tensor, {module.place->out}, name, "(experts)")) return;
  const auto base = base_bias();
  if (shapes_only_ || base.empty()) return;
  const TensorView& view = tensor.tensor.view;
  std::vector<float> own(base.size());
  kernels::dequantise_row(view.dtype, view.data, view.shape[0], own.data());
  if (std::equal(own.begin(), own.end(), base.begin())) return;
  problems_.add(
      unsupported("'{}' differs from the base's: a router cannot choose by another bias for an adapter; leave '{}' out of "
                  "modules_to_save, or save its bias as the base has it",
                  printable(tensor.name), name));
}

}  // namespace choral::lora
