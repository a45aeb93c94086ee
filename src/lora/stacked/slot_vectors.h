// What a voice does to the base's product besides its pairs: a factor for each output (DoRA), and what is added then (biases).
#pragma once

#include <cstdint>
#include <vector>

#include "lora/store/packed_adapter.h"
#include "lora/target.h"

namespace choral::lora {

// What the voice multiplies each output of the base's product by, its bias included, and what it adds then, so that the bias
// comes out as it was: (1 + Σ factor·(f − 1))·(W·x) + b + Σ factor·o.
struct SlotVectors {
  std::vector<float> factors, offsets;  // [out]; empty = all 1, all 0

  // Of the target at `index`, of whose outputs `out` are computed here. Any thread.
  static SlotVectors of(const LoRATarget& target, const PackedVoice& voice, int index, int64_t out);
};

}  // namespace choral::lora
