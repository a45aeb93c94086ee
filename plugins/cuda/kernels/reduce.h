// Sums and maxima over a warp or a block, in one order: lanes in a butterfly, then warps one after another. Every thread gets the
// same bits.
#pragma once

#include "launch.h"

namespace choral_cuda {

__device__ __forceinline__ float warp_sum(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// `shared` holds a float for each warp; nobody uses it before or after without a barrier.
__device__ __forceinline__ float block_sum(float value, float* shared) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) sum += shared[warp];
  return sum;
}

__device__ __forceinline__ float block_max(float value, float* shared) {
  value = warp_max(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float most = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) most = fmaxf(most, shared[warp]);
  return most;
}

}  // namespace choral_cuda
