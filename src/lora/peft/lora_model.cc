#include "lora/peft/lora_model.h"

#include "io/gguf_names.h"
#include "lora/peft/lora_loader.h"

namespace choral::lora {

Result<LoRAModel> LoRAModel::from_local_checkpoint(const std::filesystem::path& path, const PEFTHelper& peft,
                                                   std::span<const LoRATarget> targets, const LoRALoadOptions& options) {
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(options.config));
  CHORAL_TRY(const AdapterFile file, read_adapter_file(path, options.limits));
  return from_adapter_file(file, peft, targets, options);
}

Result<LoRAModel> LoRAModel::from_adapter_file(const AdapterFile& file, const PEFTHelper& config,
                                               std::span<const LoRATarget> targets, const LoRALoadOptions& options) {
  // A GGUF file says again what its tensors mean: the bytes that were read are one adapter.
  std::optional<PEFTHelper> own;
  if (file.gguf != nullptr) {
    CHORAL_TRY(own, PEFTHelper::from_gguf(*file.gguf));
  } else {
    CHORAL_RETURN_IF_ERROR(config.check_unchanged());
  }
  const PEFTHelper& peft = own ? *own : config;
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(options.config));
  if (peft.gguf_architecture && !options.base_class.empty() &&
      !io::is_gguf_architecture_of(*peft.gguf_architecture, options.base_class)) {
    return invalid_argument("{}: the adapter is for a model of the architecture {} (general.architecture), this one is a {}",
                            file.path.string(), *peft.gguf_architecture, options.base_class);
  }
  GgufRowOrder order;
  order.interleaved_qk = peft.gguf_interleaved_qk;
  order.head_dim = options.head_dim;
  CHORAL_TRY(const std::vector<NamedTensor> tensors, undo_gguf_row_order(file, order));
  LoRALoader loader(peft, targets, options, file.path.string(), file.shapes_only);
  return loader.load(tensors);
}

Result<LoRAModel> LoRAModel::from_lora_tensors(std::span<const NamedTensor> tensors, const PEFTHelper& peft,
                                               std::span<const LoRATarget> targets, const LoRALoadOptions& options) {
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(options.config));
  LoRALoader loader(peft, targets, options, peft.source);
  return loader.load(tensors);
}

const LoRALayerWeights* LoRAModel::get_lora(std::string_view module) const {
  const auto at = loras_.find(module);
  return at == loras_.end() ? nullptr : &at->second;
}

const TrainableTokens* LoRAModel::trainable_tokens_of(const LoRATarget& target) const {
  const TrainableTokens* found = nullptr;
  for (const auto& tokens : trainable_tokens_) {
    if (tokens.module == target.name) return &tokens;
    if (tokens.module == target.tied_to) found = &tokens;
  }
  return found;
}

int64_t LoRAModel::size_bytes() const {
  int64_t total = 0;
  const std::byte* shared = nullptr;  // a fused module's A, which its members share, counts once
  for (const auto& [name, layer] : loras_) {
    total += layer.size_bytes();
    if (layer.shares_lora_a && layer.lora_a.view.data == shared) total -= layer.lora_a.size_bytes();
    if (layer.shares_lora_a) shared = layer.lora_a.view.data;
  }
  for (const auto* group : {&replaced_weights_, &replaced_biases_, &embeddings_tensors_}) {
    for (const auto& [name, tensor] : *group) total += tensor.size_bytes();
  }
  for (const auto& tokens : trainable_tokens_) total += tokens.rows.size_bytes();
  return total;
}

}  // namespace choral::lora
