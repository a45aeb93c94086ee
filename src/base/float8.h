// Floats of eight bits as storage types.
// e4m3 ("fn"): sign, four bits of exponent with bias 7, three of mantissa; up to 448 and down to 2^-9, no infinity, NaN is 0x7f
// and 0xff. Exact to float; from float to nearest, ties to even, numbers beyond 448 to 448.
// e8m0: a power of two, 2^(bits - 127), and no sign; NaN is 0xff. Exact to float.
#pragma once

#include "base/float16.h"

namespace choral {

struct Float8E4M3 {
  uint8_t bits;
};

struct Float8E8M0 {
  uint8_t bits;
};

inline constexpr float kFloat8E4M3Max = 448.0f;

inline bool is_nan(Float8E4M3 x) { return (x.bits & 0x7Fu) == 0x7Fu; }

// x · 2^-8 as a half, exact for subnormal numbers too: the exponents' biases differ by 8. What a NaN gives is a number.
inline Float16 scaled_half(Float8E4M3 x) { return {static_cast<uint16_t>((x.bits & 0x80u) << 8 | (x.bits & 0x7Fu) << 7)}; }

inline float to_float(Float8E4M3 x) {
  if (is_nan(x)) return std::bit_cast<float>(static_cast<uint32_t>(x.bits & 0x80u) << 24 | 0x7FC00000u);
  return to_float(scaled_half(x)) * 256.0f;
}

inline float to_float(Float8E8M0 x) {
  if (x.bits == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(x.bits == 0 ? 0x00400000u : static_cast<uint32_t>(x.bits) << 23);  // 2^-127 is subnormal
}

inline Float8E4M3 to_float8_e4m3(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = u >> 24 & 0x80u, magnitude = u & 0x7FFFFFFFu;
  // Below 2^-6, adding 2^14 leaves the rounded count of 2^-9 in the low bits.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
  const uint32_t normal = (magnitude - 0x3C000000u + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20;
  uint32_t code = magnitude < 0x3C800000u ? subnormal : normal;
  code = magnitude >= 0x43E00000u ? 0x7Eu : code;  // 448
  code = magnitude > 0x7F800000u ? 0x7Fu : code;
  return {static_cast<uint8_t>(sign | code)};
}

}  // namespace choral
