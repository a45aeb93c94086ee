// Operators that look at one element, or at a few of one place: sums, factors, gated activations, copies and sums of rows.
#include "rows.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 256, kElementsOfBlock = 4 * kThreads;

// A block for each row and 1024 columns.
GridShape shape_of(const choral_matrix& y) {
  return {dim3(static_cast<unsigned>(y.rows), static_cast<unsigned>(ceil_div<int64_t>(y.cols, kElementsOfBlock))),
          dim3(kThreads)};
}

// y's column i becomes value(i); all are read before the first is written, so that loads wait for each other no longer than they
// must.
template <class Value>
__device__ __forceinline__ void for_columns(float* y, int64_t cols, Value value) {
  const int64_t begin = int64_t{blockIdx.y} * kElementsOfBlock + threadIdx.x;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (begin + i * kThreads < cols) values[i] = value(begin + i * kThreads);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (begin + i * kThreads < cols) y[begin + i * kThreads] = values[i];
  }
}

__global__ void __launch_bounds__(kThreads) add_kernel(Rows x, Rows y, int64_t cols) {
  wait_for_earlier_kernels();
  const float* from = x[blockIdx.x];
  float* to = y[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) { return to[i] + from[i]; });
}

__global__ void __launch_bounds__(kThreads) scale_kernel(Rows y, int64_t cols, float factor) {
  wait_for_earlier_kernels();
  float* to = y[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) { return to[i] * factor; });
}

__global__ void __launch_bounds__(kThreads) soft_cap_kernel(Rows y, int64_t cols, float cap) {
  wait_for_earlier_kernels();
  float* to = y[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) { return cap * tanhf(to[i] / cap); });
}

struct Silu {
  static __device__ __forceinline__ float of(float x) { return x / (1.0f + expf(-x)); }
};

struct GeluTanh {  // x/2 · (1 + tanh(z)) is x / (1 + e^-2z)
  static __device__ __forceinline__ float of(float x) {
    const float z = 0.7978845608f * (x + 0.044715f * x * x * x);  // √(2/π)
    return x / (1.0f + expf(-2.0f * z));
  }
};

template <class Activation>
__global__ void __launch_bounds__(kThreads) gated_kernel(Rows x, Rows y, int64_t cols) {
  wait_for_earlier_kernels();
  const float* gate = x[blockIdx.x];
  const float* up = gate + cols;
  float* to = y[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) { return Activation::of(gate[i]) * up[i]; });
}

// Comparisons, not fminf: a NaN stays one.
__global__ void __launch_bounds__(kThreads) swigluoai_kernel(Rows x, Rows y, int64_t cols, float alpha, float limit) {
  wait_for_earlier_kernels();
  const float* from = x[blockIdx.x];
  float* to = y[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) {
    const float gate = from[2 * i] > limit ? limit : from[2 * i], up = from[2 * i + 1];
    const float clamped = up > limit ? limit : up < -limit ? -limit : up;
    return (clamped + 1.0f) * (gate / (1.0f + expf(-alpha * gate)));
  });
}

__global__ void __launch_bounds__(kThreads)
    take_rows_kernel(Rows x, int64_t x_rows, const int32_t* rows, Rows out, int64_t cols, int32_t* fault) {
  wait_for_earlier_kernels();
  const int32_t row = rows[blockIdx.x];
  if (row < 0 || row >= x_rows) {
    report(fault, kRowBeyond);
    return;
  }
  const float* from = x[row];
  float* to = out[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) { return from[i]; });
}

__global__ void __launch_bounds__(kThreads) moe_combine_kernel(Rows x, int64_t x_rows, const int32_t* places, Rows weights,
                                                               int64_t slots, bool add, Rows y, int64_t cols, int32_t* fault) {
  wait_for_earlier_kernels();
  const int32_t* place = places + blockIdx.x * slots;
  for (int64_t s = 0; s < slots; ++s) {
    if (place[s] >= 0 && place[s] < x_rows) continue;
    report(fault, kRowBeyond);
    return;
  }
  const float* weight = weights[blockIdx.x];
  float* to = y[blockIdx.x];
  for_columns(to, cols, [&](int64_t i) {
    float sum = add ? to[i] : 0.0f;
    for (int64_t s = 0; s < slots; ++s) sum = fmaf(weight[s], x[place[s]][i], sum);
    return sum;
  });
}

bool empty(const choral_matrix& matrix) { return matrix.rows == 0 || matrix.cols == 0; }

}  // namespace

cudaError_t add(const Launch& launch, const choral_unary_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(add_kernel, shape_of(a.y), launch, Rows(a.x), Rows(a.y), a.y.cols);
}

cudaError_t add_bias(const Launch& launch, const choral_bias_args& a) {
  if (empty(a.y)) return cudaSuccess;
  const Rows same_row(static_cast<float*>(const_cast<void*>(a.bias.data)), 0);
  return launch_kernel(add_kernel, shape_of(a.y), launch, same_row, Rows(a.y), a.y.cols);
}

cudaError_t scale(const Launch& launch, const choral_scale_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(scale_kernel, shape_of(a.y), launch, Rows(a.y), a.y.cols, a.factor);
}

cudaError_t soft_cap(const Launch& launch, const choral_soft_cap_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(soft_cap_kernel, shape_of(a.y), launch, Rows(a.y), a.y.cols, a.cap);
}

cudaError_t silu_and_mul(const Launch& launch, const choral_unary_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(gated_kernel<Silu>, shape_of(a.y), launch, Rows(a.x), Rows(a.y), a.y.cols);
}

cudaError_t gelu_tanh_and_mul(const Launch& launch, const choral_unary_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(gated_kernel<GeluTanh>, shape_of(a.y), launch, Rows(a.x), Rows(a.y), a.y.cols);
}

cudaError_t swigluoai_and_mul(const Launch& launch, const choral_swigluoai_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(swigluoai_kernel, shape_of(a.y), launch, Rows(a.x), Rows(a.y), a.y.cols, a.alpha, a.limit);
}

cudaError_t take_rows(const Launch& launch, const choral_take_rows_args& a) {
  if (empty(a.out)) return cudaSuccess;
  return launch_kernel(take_rows_kernel, shape_of(a.out), launch, Rows(a.x), a.x.rows, a.rows, Rows(a.out), a.out.cols,
                       launch.fault);
}

cudaError_t moe_combine(const Launch& launch, const choral_moe_combine_args& a) {
  if (empty(a.y)) return cudaSuccess;
  return launch_kernel(moe_combine_kernel, shape_of(a.y), launch, Rows(a.x), a.x.rows, a.places, Rows(a.weights), a.weights.cols,
                       a.add != 0, Rows(a.y), a.y.cols, launch.fault);
}

}  // namespace choral_cuda
