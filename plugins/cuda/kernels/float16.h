// Floats of 16 and 8 bits on the host, for packing and for the emulation. Widening is exact, narrowing rounds to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace choral_cuda {

inline float from_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // stays a NaN
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 31u, mantissa = half & 1023u;
  if (exponent == 0) return (sign != 0 ? -0x1p-24f : 0x1p-24f) * static_cast<float>(mantissa);
  return std::bit_cast<float>(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13);
}

inline uint16_t to_f16(float value) {
  const auto all = std::bit_cast<uint32_t>(value);
  const uint32_t sign = all >> 16 & 0x8000u, bits = all & 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (bits < 0x38800000u) {  // below 2^-14: a float from 0.5 on has steps of 2^-24, those of the small halves
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | (bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13);
}

// Of e4m3; its two NaNs are codes 0x7f and 0xff.
inline float from_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace choral_cuda
