// An adapter's identity: the SHA-256 of its meaning and of each tensor's own SHA-256, so that tensors can be hashed in any order
// and by several threads.
#include "lora/peft/lora_model.h"

namespace choral::lora {
namespace {

// Says all that `model` does to one that takes numbers, texts, ids and tensors; no two models say the same sequence.
template <class Listener>
void describe(const LoRAModel& model, Listener& to) {
  const auto tensors = [&](const std::map<std::string, AdapterTensor, std::less<>>& named) {
    to.number(static_cast<uint64_t>(named.size()));
    for (const auto& [name, value] : named) {
      to.text(name);
      to.tensor(value);
    }
  };
  to.text("choral adapter 3");
  to.number(static_cast<uint64_t>(model.loras().size()));
  for (const auto& [name, layer] : model.loras()) {
    to.text(name);
    to.number(layer.scaling);
    to.number(static_cast<uint8_t>(layer.is_embedding));
    for (const auto* tensor : {&layer.lora_a, &layer.lora_b, &layer.bias, &layer.magnitude}) {
      to.tensor(*tensor);
    }
  }
  tensors(model.replaced_weights());
  tensors(model.replaced_biases());
  tensors(model.embeddings_tensors());
  to.number(static_cast<uint64_t>(model.trainable_tokens().size()));
  for (const auto& tokens : model.trainable_tokens()) {
    to.text(tokens.module);
    to.ids(tokens.token_ids);
    to.tensor(tokens.rows);
  }
  to.ids(model.alora_invocation_tokens());
}

class TensorList {
 public:
  template <class T>
  void number(T) {}
  void text(std::string_view) {}
  void ids(std::span<const int32_t>) {}
  void tensor(const AdapterTensor& value) {
    if (!value.empty()) tensors_.push_back(&value);
  }
  std::span<const AdapterTensor* const> tensors() const { return tensors_; }

 private:
  std::vector<const AdapterTensor*> tensors_;
};

class ContentHash {
 public:
  // `digests`: of TensorList's tensors, in its order.
  explicit ContentHash(std::span<const Sha256Digest> digests) : digests_(digests) {}

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
  // Absent tensors count too.
  void tensor(const AdapterTensor& value) {
    number<uint8_t>(value.empty() ? 0 : 1);
    if (value.empty()) return;
    text(dtype_name(value.view.dtype));
    number<int32_t>(value.view.shape.rank());
    for (const int64_t extent : value.view.shape.dims()) number(extent);
    hash_.update(std::as_bytes(std::span(digests_.front())));
    digests_ = digests_.subspan(1);
  }
  Sha256Digest finish() { return hash_.finish(); }

 private:
  std::span<const Sha256Digest> digests_;
  Sha256 hash_;
};

}  // namespace

Sha256Digest LoRAModel::digest(ThreadPool& pool) const {
  TensorList list;
  describe(*this, list);
  const auto tensors = list.tensors();
  std::vector<Sha256Digest> digests(tensors.size());
  pool.parallel_for(std::ssize(tensors), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const TensorView& view = tensors[i]->view;
      digests[i] = sha256({view.data, static_cast<size_t>(view.size_bytes())});
    }
  });
  ContentHash hash(digests);
  describe(*this, hash);
  return hash.finish();
}

Sha256Digest LoRAModel::digest() const {
  ThreadPool alone(1);
  return digest(alone);
}

}  // namespace choral::lora
