// The oracle of rotary.h: rotates one head by the formula, in double, with cos and sin given. Single-threaded.
#pragma once

#include <span>

namespace choral::kernels::ref {

// x [head_dim]; cos, sin [rotary_dim/2]. Elements from rotary_dim on stay.
void rotate_head(std::span<float> x, std::span<const float> cos, std::span<const float> sin, bool interleaved);

}  // namespace choral::kernels::ref
