#include "kernels/ref/rotary.h"

namespace choral::kernels::ref {

void rotate_head(std::span<float> x, std::span<const float> cos, std::span<const float> sin, bool interleaved) {
  const size_t half = cos.size();
  for (size_t i = 0; i < half; ++i) {
    float& first = interleaved ? x[2 * i] : x[i];
    float& second = interleaved ? x[2 * i + 1] : x[half + i];
    const double a = first, b = second, c = cos[i], s = sin[i];
    first = static_cast<float>(a * c - b * s);
    second = static_cast<float>(b * c + a * s);
  }
}

}  // namespace choral::kernels::ref
