// What a model offers to adapters: each place that an adapter may change, with its names in adapter files.
// Layers declare their targets while the model is built. A target's index is its position in the model's list and never changes.
// Plain values; the base-weight reader is valid as long as the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace choral::lora {

enum class TargetKind : uint8_t {
  kLinear,     // y = x·Wᵀ + b of one or several stacked projections
  kEmbedding,  // rows looked up by token id
  kHead,       // linear from hidden to the vocabulary
  kNorm,       // a weight vector; only ever replaced as a whole
};

// Of a rank of a divided model, which has some of a layer's outputs: columns [of, of + count) of the whole layer's are columns
// [at, at + count) of what it computes.
struct HeldColumns {
  int64_t of = 0, at = 0, count = 0;
};

// One projection as checkpoint files name it.
struct TargetMember {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t out = 0;   // rows of its weight: its columns of the layer's output, one member after the other
};

struct LoRATarget {
  TargetKind kind = TargetKind::kLinear;
  std::string name;  // "model.layers.0.self_attn.qkv_proj": how messages and already-fused files call the whole
  std::vector<TargetMember> members = {};
  std::vector<HeldColumns> held = {};  // ascending; empty: this process has all of the layer
  // Of a layer that ranks divide, as adapters see the whole: columns that no rank of this process has, ascending. base_row() has
  // none of their rows, base_bias() zeros, and what is packed for them is not used.
  std::vector<HeldColumns> elsewhere = {};
  std::string name_in_5 = {};  // what stands for `name` in renamed_in_5(), where transformers 5 calls it otherwise than that says
  std::string tied_to = {};    // a head that is the embedding of this name, seen from the other side
  int64_t in = 0;              // a norm's size; an embedding's vocabulary stands in members[0].out and its width here
  int64_t heads = 1;           // of a norm: files have its weight as a matrix of so many rows
  // Not empty: element i of the x that the layer multiplies is what files call in_order[i]. Files' matrices are turned to it.
  std::vector<int32_t> in_order = {};
  float stored_less = 0;  // of a norm: what files have subtracted from the weight (Gemma's: 1)
  // A linear layer that is not computed where it stands: latent attention multiplies queries by the part that makes keys. So what
  // changes a key is applied by the row that looks at it, and must be the same for all keys of a sequence.
  bool absorbed = false;
  // W's row `row` (of the stacked whole, or of what is held) as float, as the layer computes with it: for DoRA's norms. Null for
  // norms. An error is the device's.
  std::function<Status(int64_t row, std::span<float> out)> base_row = {};
  // The layer's own bias, a norm's too; empty when it has none. [out, or as many as are held]
  std::function<std::span<const float>()> base_bias = {};
  // A router's bias that helps to choose but has no share in the weights; adapters choose by the base's. Null for what has none;
  // empty while the base's weights are not there. [out]
  std::function<std::span<const float>()> selection_bias = {};

  bool has_row(int64_t row) const {
    return std::none_of(elsewhere.begin(), elsewhere.end(),
                        [&](const HeldColumns& part) { return row >= part.of && row < part.of + part.count; });
  }
  int64_t out() const {
    int64_t total = 0;
    for (const auto& member : members) total += member.out;
    return total;
  }
  // What this process has of outputs [begin, begin + count).
  template <class Visit>
  void for_each_held(int64_t begin, int64_t count, Visit visit) const {
    if (held.empty()) return visit(HeldColumns{begin, begin, count});
    for (const auto& [of, at, columns] : held) {
      const int64_t from = std::max(begin, of), to = std::min(begin + count, of + columns);
      if (from < to) visit(HeldColumns{from, at + from - of, to - from});
    }
  }
};

}  // namespace choral::lora
