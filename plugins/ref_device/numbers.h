/* Floats of 16 bits. Widening is exact, narrowing rounds to nearest even. Pure functions. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "choral/plugin.h"

static inline int64_t ref_float_bytes(int32_t dtype) {
  if (dtype == CHORAL_F32) return 4;
  return dtype == CHORAL_F16 || dtype == CHORAL_BF16 ? 2 : 0; /* 0: not a float */
}

static inline uint32_t ref_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float ref_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float ref_from_bf16(uint16_t half) { return ref_from_bits((uint32_t)half << 16); }

static inline uint16_t ref_to_bf16(float value) {
  const uint32_t bits = ref_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); /* stays a NaN */
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float ref_from_f16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 1023u;
  if (exponent == 0) return (sign != 0 ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
  return ref_from_bits(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13);
}

static inline uint16_t ref_to_f16(float value) {
  const uint32_t sign = ref_bits(value) >> 16 & 0x8000u, bits = ref_bits(value) & 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
  if (bits < 0x38800000u) { /* below 2⁻¹⁴: a float from 0.5 on has steps of 2⁻²⁴, those of the small halves */
    return (uint16_t)(sign | (ref_bits(ref_from_bits(bits) + 0.5f) - 0x3f000000u));
  }
  return (uint16_t)(sign | (bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13);
}

/* `count` elements of `dtype` (f32, f16, bf16) to floats and back. */
static inline void ref_widen(int32_t dtype, const void* from, int64_t count, float* to) {
  const uint16_t* halves = from;
  if (dtype == CHORAL_F32) {
    memcpy(to, from, (size_t)count * sizeof *to);
  } else if (dtype == CHORAL_BF16) {
    for (int64_t i = 0; i < count; ++i) to[i] = ref_from_bf16(halves[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = ref_from_f16(halves[i]);
  }
}

static inline void ref_narrow(int32_t dtype, const float* from, int64_t count, void* to) {
  uint16_t* halves = to;
  if (dtype == CHORAL_F32) {
    memcpy(to, from, (size_t)count * sizeof *from);
  } else if (dtype == CHORAL_BF16) {
    for (int64_t i = 0; i < count; ++i) halves[i] = ref_to_bf16(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) halves[i] = ref_to_f16(from[i]);
  }
}
