// Rows of the ABI's matrices in kernels, and faults.
#pragma once

#include "kernels.h"
#include "launch.h"

namespace choral_cuda {

// A matrix of floats; passed by value.
struct Rows {
  float* data;
  int64_t stride;
  Rows() = default;
  __host__ __device__ Rows(float* data_, int64_t stride_) : data(data_), stride(stride_) {}
  explicit Rows(const choral_matrix& matrix) : data(static_cast<float*>(matrix.data)), stride(matrix.stride) {}
  __device__ __forceinline__ float* operator[](int64_t row) const { return data + row * stride; }
};

__device__ __forceinline__ void report(int32_t* fault, Fault what) { atomicMax(fault, static_cast<int32_t>(what)); }

}  // namespace choral_cuda
