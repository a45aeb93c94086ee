// The scheme "none": y = x·Wᵀ + b with W as the checkpoint stores it (bf16, f16, f32, or GGUF blocks) or rounded to --dtype.
// Shards of one stored type become one packed matrix; where types differ (Q4_K_M mixes Q4_K and Q6_K) each run keeps its own.
#pragma once

#include <memory>

#include "quant/quant_config.h"

namespace choral::quant {

std::unique_ptr<QuantConfig> make_unquantized_config();

}  // namespace choral::quant
