// The instructions of ptx.h in emulation.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "float16.h"

namespace choral_cuda {

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
uint32_t transpose_8x8(uint32_t x);
uint4 load_matrices(const void* row);

inline uint32_t pack_bf16(float low, float high) { return to_bf16(low) | uint32_t{to_bf16(high)} << 16; }
inline uint32_t pack_f16(float low, float high) { return to_f16(low) | uint32_t{to_f16(high)} << 16; }
inline float widen_f16(uint16_t half) { return from_f16(half); }

inline float power_of_2(float x) { return x < -126.0f ? 0.0f : std::exp2(x); }

inline float half_of_bf16x2(uint32_t pair, int i) { return from_bf16(static_cast<uint16_t>(pair >> 16 * i)); }
inline uint32_t subtract_bf16x2(uint32_t a, uint32_t b) {
  return pack_bf16(half_of_bf16x2(a, 0) - half_of_bf16x2(b, 0), half_of_bf16x2(a, 1) - half_of_bf16x2(b, 1));
}
inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  return pack_bf16(half_of_bf16x2(a, 0) * half_of_bf16x2(b, 0), half_of_bf16x2(a, 1) * half_of_bf16x2(b, 1));
}

inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t y = 0;
  for (int i = 0; i < 4; ++i) y |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return y;
}

inline uint4 load_streaming(const void* from) { return *static_cast<const uint4*>(from); }
inline void fetch_line(const void* global) { (void)*static_cast<const volatile unsigned char*>(global); }

inline void copy_16_async(void* shared, const void* global, bool valid) {
  cuda_emulation::copy_async(shared, global, 16, valid ? 16 : 0);
}
inline void commit_async_copies() { cuda_emulation::commit_copies(); }
template <int groups>
void wait_async_copies() {
  cuda_emulation::wait_copies(groups);
}

}  // namespace choral_cuda
