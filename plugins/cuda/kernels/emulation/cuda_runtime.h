// What kernels are written in, for g++: the words of CUDA C++ that this folder uses, run by fibers (block.h). The runtime's
// functions are those of ../../emulation. Only the kernels' sources see this header in place of the toolkit's.
#pragma once

#define CHORAL_CUDA_EMULATION 1

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "../../emulation/runtime_api.h"
#include "block.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (::cuda_emulation::current_thread->index)
#define blockIdx (::cuda_emulation::current_block->index)
#define blockDim (::cuda_emulation::current_block->threads)
#define gridDim (::cuda_emulation::current_block->blocks)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline void __syncthreads() { cuda_emulation::barrier(); }
inline void __syncwarp() {
  cuda_emulation::meet([](void* const*) {}, nullptr);
}

template <class T>
struct ShuffledValue {
  T given, taken;
  int lane;
};

// The value that lane `lane` gave.
template <class T>
T __shfl_sync(uint32_t, T value, int lane) {
  ShuffledValue<T> mine{value, value, lane & 31};
  cuda_emulation::meet(
      [](void* const* lanes) {
        for (int i = 0; i < cuda_emulation::kWarpLanes; ++i) {
          auto* here = static_cast<ShuffledValue<T>*>(lanes[i]);
          here->taken = static_cast<const ShuffledValue<T>*>(lanes[here->lane])->given;
        }
      },
      &mine);
  return mine.taken;
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int with) {
  return __shfl_sync(mask, value, cuda_emulation::current_thread->lane ^ with);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, int by) {
  const int lane = cuda_emulation::current_thread->lane;
  return __shfl_sync(mask, value, lane < by ? lane : lane - by);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  uint32_t all = 0;
  for (int i = 0; i < cuda_emulation::kWarpLanes; ++i) all |= __shfl_sync(mask, predicate != 0 ? 1u : 0u, i) << i;
  return all;
}

inline int atomicMax(int* at, int value) {
  const int before = *at;
  if (value > before) *at = value;
  return before;
}
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
inline int __ffs(uint32_t bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
