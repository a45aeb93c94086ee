#include "lora/peft/lora_layer_weights.h"

namespace choral::lora {

int64_t LoRALayerWeights::size_bytes() const {
  return lora_a.size_bytes() + lora_b.size_bytes() + bias.size_bytes() + magnitude.size_bytes();
}

}  // namespace choral::lora
