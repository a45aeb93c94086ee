// An adapter as the engine runs it: for each target that it touches, its low-rank pair or its replacement, packed at true ranks.
// Made once from a LoRAModel off the engine thread, immutable afterwards, so any number of steps and requests share it. Identity
// is content: two files with the same tensors and meaning have the same digest.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/lora/lora_matrix.h"
#include "lora/lora_config.h"
#include "lora/peft/adapter_source.h"
#include "lora/peft/lora_model.h"
#include "lora/target.h"
#include "platform/context.h"
#include "platform/platform.h"

namespace choral::lora {

// Columns [out_begin, out_begin + matrix->n()) of a layer come from this matrix instead of the base's (modules_to_save).
struct ReplacedColumns {
  int64_t out_begin = 0;
  std::unique_ptr<kernels::PackedMatrix> matrix;
  std::vector<float> bias_change;  // what its bias has more than the base's; empty = the same
};

// What an adapter does to one target. Which members are set depends on target and adapter.
struct PackedModule {
  std::optional<kernels::LoRAMatrix> delta;
  std::vector<ReplacedColumns> replaced;  // linear layers and heads
  std::vector<float> norm_weight;         // a norm's replaced weight,
  std::vector<float> norm_bias;           // and bias

  // Embedding: A turned round, so that a token's middle is one row (times token_scale). [vocab, rank]
  Tensor token_middles;
  float token_scale = 1.0F;
  std::unique_ptr<kernels::PackedMatrix> table;  // the whole table replaced
  // Embedding and head: single rows of the table replaced (trainable tokens); ids ascending, row i belongs to token_ids[i].
  std::vector<int32_t> token_ids;
  std::unique_ptr<kernels::PackedMatrix> token_rows;
  // Embedding and head: rows of the adapter's own tokens, of which own_begin is the first.
  std::unique_ptr<kernels::PackedMatrix> own_rows;
  int32_t own_begin = 0;

  int64_t size_bytes() const;
};

class PackedAdapter {
 public:
  // Packs `model` for the targets it was checked against, in host memory: `ctx` is one of the CPU, whose threads are used. The
  // model is not kept; `source` is, where it was read from. `memory`, zeros, becomes that of the panels if it has their size.
  static Result<std::shared_ptr<const PackedAdapter>> pack(const platform::Context& ctx, const LoRAModel& model,
                                                           std::span<const LoRATarget> targets, const LoRAConfig& config,
                                                           std::optional<AdapterSource> source = {}, AlignedBuffer memory = {});

  // size_bytes() of what pack() makes of `model`, which may be one of shapes alone (read_adapter_shapes): nothing is packed and
  // no value read.
  static Result<int64_t> packed_bytes(const LoRAModel& model, std::span<const LoRATarget> targets, const LoRAConfig& config);

  // Null when the adapter leaves target `index` alone.
  const PackedModule* module(int index) const {
    const auto& page = pages_[static_cast<size_t>(index) / kPageTargets];
    return page == nullptr ? nullptr : (*page)[static_cast<size_t>(index) % kPageTargets].get();
  }
  // Asks memory for what module(index) will show, if there is such a target.
  void prefetch_module(int index) const;
  // Where other processes find it that compute with it too.
  const std::optional<AdapterSource>& source() const { return source_; }
  const Sha256Digest& digest() const { return digest_; }
  int64_t rank() const { return rank_; }
  int64_t size_bytes() const { return size_bytes_; }
  size_t panel_bytes() const { return panels_.size_bytes(); }
  // Replaces weights as a whole somewhere, or brings tokens of its own: such an adapter is used alone and at factor 1.
  bool replaces() const { return replaces_; }
  // Tokens that it brings: they follow the base's vocabulary, and exist for its requests only. All of them have a row in the
  // embedding; in the head they have one or, where the file has none there, none of them has.
  int64_t own_tokens() const { return own_tokens_; }
  std::span<const int32_t> invocation_tokens() const { return invocation_tokens_; }  // aLoRA; empty = acts everywhere

 private:
  // A model with many experts has tens of thousands of targets, of which most adapters touch few.
  static constexpr size_t kPageTargets = 64;
  using Page = std::array<std::unique_ptr<const PackedModule>, kPageTargets>;

  PackedAdapter() = default;
  void put(size_t index, std::unique_ptr<const PackedModule> module);

  AlignedBuffer panels_;                      // of all modules' deltas, in the order in which a step reads them
  size_t targets_ = 0;                        // of the model
  std::vector<std::unique_ptr<Page>> pages_;  // of targets in their order; null: the adapter touches none of them
  std::optional<AdapterSource> source_;
  Sha256Digest digest_{};
  int64_t rank_ = 0;
  int64_t size_bytes_ = 0;
  bool replaces_ = false;
  int64_t own_tokens_ = 0;
  std::vector<int32_t> invocation_tokens_;
};

// A voice, ready to be computed with: adapters with factors, applied in this order.
struct PackedVoiceTerm {
  std::shared_ptr<const PackedAdapter> adapter;
  float factor = 1.0F;
};
using PackedVoice = std::vector<PackedVoiceTerm>;
inline constexpr size_t kMaxVoiceTerms = 8;

}  // namespace choral::lora
