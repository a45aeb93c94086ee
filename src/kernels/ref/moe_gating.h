// The oracle of fused/moe_gating.h: by sorting, in double. Single-threaded.
#pragma once

#include <vector>

#include "kernels/fused/moe_gating.h"

namespace choral::kernels::ref {

// `gap` is how far the choice is from any other: the smallest difference, 0 excepted, that decided about an expert or a group. An
// exact tie is broken by the lower index here as there, so it is no reason to differ.
struct GatingChoice {
  std::vector<int32_t> ids;
  std::vector<double> weights;
  double gap;
};
GatingChoice moe_gating_row(std::span<const float> logits, const MoeGating& gating);

}  // namespace choral::kernels::ref
