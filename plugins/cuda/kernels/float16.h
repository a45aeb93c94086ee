// Floats of 16 and 8 bits in plain integers, for packing, for reading rows back and for the emulation. Widening is exact,
// narrowing rounds to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define CHORAL_ANYWHERE __host__ __device__ inline
#else
#define CHORAL_ANYWHERE inline
#endif

namespace choral_cuda {

CHORAL_ANYWHERE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
CHORAL_ANYWHERE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

CHORAL_ANYWHERE float from_bf16(uint16_t half) { return float_of(uint32_t{half} << 16); }

CHORAL_ANYWHERE uint16_t to_bf16(float value) {
  const auto bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // stays a NaN
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

CHORAL_ANYWHERE float from_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 31u, mantissa = half & 1023u;
  if (exponent == 0) return (sign != 0 ? -0x1p-24f : 0x1p-24f) * static_cast<float>(mantissa);
  return float_of(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13);
}

CHORAL_ANYWHERE uint16_t to_f16(float value) {
  const auto all = bits_of(value);
  const uint32_t sign = all >> 16 & 0x8000u, bits = all & 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (bits < 0x38800000u) {  // below 2^-14: a float from 0.5 on has steps of 2^-24, those of the small halves
    return static_cast<uint16_t>(sign | (bits_of(float_of(bits) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | (bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13);
}

// Of e4m3; its two NaNs are codes 0x7f and 0xff. As bits of a half the code is the number times 2^-8.
CHORAL_ANYWHERE float from_e4m3(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return float_of(0x7fc00000u);
  return 256.0f * from_f16(static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7));
}

}  // namespace choral_cuda
