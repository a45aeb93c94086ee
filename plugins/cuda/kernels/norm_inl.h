// The scale of a root-mean-square norm, for the norm's own kernels and for those that norm heads on their way.
#pragma once

#include "reduce.h"

namespace choral_cuda {

__device__ __forceinline__ float rms_scale(float sum_of_squares, int64_t size, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(size) + eps);
}

// Of a head that the warp's lanes look at together; each gets the same scale.
__device__ __forceinline__ float warp_rms_scale(const float* x, int64_t size, float eps) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x % kWarp; i < size; i += kWarp) sum = fmaf(x[i], x[i], sum);
  return rms_scale(warp_sum(sum), size, eps);
}

}  // namespace choral_cuda
