#include "lora/lora_model.h"

#include "lora/lora_loader.h"

namespace choral::lora {
namespace {

class ContentHash {
 public:
  template <class T>
  void number(T value) {
    hash_.update_value(value);
  }
  void text(std::string_view value) {
    number<uint64_t>(value.size());
    hash_.update(std::as_bytes(std::span(value.data(), value.size())));
  }
  void ids(std::span<const int32_t> values) {
    number<uint64_t>(values.size());
    hash_.update(std::as_bytes(values));
  }
  // Absent tensors count too, so that no two adapters write the same sequence.
  void tensor(const AdapterTensor& value) {
    number<uint8_t>(value.empty() ? 0 : 1);
    if (value.empty()) return;
    text(dtype_name(value.view.dtype));
    number<int32_t>(value.view.shape.rank());
    for (const int64_t extent : value.view.shape.dims()) number(extent);
    hash_.update({value.view.data, static_cast<size_t>(value.view.size_bytes())});
  }
  void tensors(const std::map<std::string, AdapterTensor, std::less<>>& named) {
    number<uint64_t>(named.size());
    for (const auto& [name, value] : named) {
      text(name);
      tensor(value);
    }
  }
  Sha256Digest finish() { return hash_.finish(); }

 private:
  Sha256 hash_;
};

}  // namespace

Result<LoRAModel> LoRAModel::from_local_checkpoint(const std::filesystem::path& path, const PEFTHelper& peft,
                                                   std::span<const LoRATarget> targets, const LoRALoadOptions& options) {
  CHORAL_RETURN_IF_ERROR(peft.validate_legal(options.config));
  CHORAL_TRY(const AdapterFile file, read_adapter_file(path, options.limits));
  GgufRowOrder order;
  order.interleaved_qk = peft.gguf_interleaved_qk;
  order.head_dim = options.head_dim;
  CHORAL_TRY(const std::vector<NamedTensor> tensors, undo_gguf_row_order(file, order));
  LoRALoader loader(peft, targets, options, file.path.string());
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

LoRAModel LoRAModel::clone(int64_t new_id) const {
  LoRAModel copy = *this;
  copy.id_ = new_id;
  return copy;
}

Status LoRAModel::optimize() {
  for (auto& [name, layer] : loras_) CHORAL_RETURN_IF_ERROR(layer.optimize());
  return {};
}

int64_t LoRAModel::size_bytes() const {
  int64_t total = 0;
  const std::byte* shared = nullptr;  // a fused module's A, which its members share, counts once
  for (const auto& [name, layer] : loras_) {
    total += layer.size_bytes();
    if (layer.shares_lora_a && layer.lora_a.view.data == shared) total -= layer.lora_a.size_bytes();
    if (layer.shares_lora_a) shared = layer.lora_a.view.data;
  }
  for (const auto* group : {&replaced_weights_, &replaced_biases_, &embeddings_}) {
    for (const auto& [name, tensor] : *group) total += tensor.size_bytes();
  }
  for (const auto& tokens : trainable_tokens_) total += tokens.rows.size_bytes();
  return total;
}

Sha256Digest LoRAModel::content_digest() const {
  ContentHash hash;
  hash.text("choral adapter 1");
  hash.number<uint64_t>(loras_.size());
  for (const auto& [name, layer] : loras_) {
    hash.text(name);
    hash.number(layer.scaling);
    hash.number<uint8_t>(layer.is_embedding);
    for (const auto* tensor : {&layer.lora_a, &layer.lora_b, &layer.bias, &layer.embeddings_tensor, &layer.magnitude}) {
      hash.tensor(*tensor);
    }
  }
  hash.tensors(replaced_weights_);
  hash.tensors(replaced_biases_);
  hash.tensors(embeddings_);
  hash.number<uint64_t>(trainable_tokens_.size());
  for (const auto& tokens : trainable_tokens_) {
    hash.text(tokens.module);
    hash.ids(tokens.token_ids);
    hash.tensor(tokens.rows);
  }
  hash.ids(alora_invocation_tokens_);
  return hash.finish();
}

}  // namespace choral::lora
