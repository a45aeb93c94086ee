// How much a module's pair changes its weight: ‖s·B·A‖, the length of all that it adds (Frobenius' norm). B·A is as large as the
// weight and is never made: its length follows from the rank × rank products BᵀB and A·Aᵀ.
#pragma once

#include "base/status.h"
#include "lora/peft/lora_layer_weights.h"

namespace choral::lora {

Result<double> delta_norm(const LoRALayerWeights& layer);

}  // namespace choral::lora
