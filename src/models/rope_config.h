// config.json's rope fields -> the kernels' RotaryParams. One reading for all families.
#pragma once

#include "io/config_map.h"
#include "kernels/rotary/rotary.h"

namespace choral::models {

// `head_dim` and `max_positions` are known already; the rest stands in rope_theta, rope_scaling, partial_rotary_factor.
Result<kernels::RotaryParams> read_rope_config(const io::ConfigMap& config, int64_t head_dim, int64_t max_positions,
                                               int64_t config_positions);

}  // namespace choral::models
