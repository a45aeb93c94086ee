// y = x·rsqrt(mean(x²) + eps)·weight (+ bias). A row is one block's, a head one warp's; each thread sums every 256th (32nd)
// square, and the sums are added in reduce.h's order. A block keeps as much of its row as its registers hold.
#include "norm_inl.h"
#include "reduce.h"
#include "rows.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 256;

template <bool with_residual>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(Rows x, Rows residual, Rows y, const float* weight, const float* bias, int64_t cols, float eps) {
  wait_for_earlier_kernels();
  constexpr int kKept = 32;  // of a thread
  float* shared = shared_memory<float>();
  const float* from = x[blockIdx.x];
  float* normed = with_residual ? residual[blockIdx.x] : x[blockIdx.x];
  float* to = y[blockIdx.x];
  float kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t i = threadIdx.x + k * kThreads;
    kept[k] = i >= cols ? 0.0f : with_residual ? normed[i] + from[i] : normed[i];
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t i = threadIdx.x + k * kThreads;
    if (i >= cols) break;
    if (with_residual) normed[i] = kept[k];
    sum = fmaf(kept[k], kept[k], sum);
  }
  for (int64_t i = threadIdx.x + kKept * kThreads; i < cols; i += kThreads) {
    if (with_residual) normed[i] += from[i];
    sum = fmaf(normed[i], normed[i], sum);
  }
  const float scale = rms_scale(block_sum(sum, shared), cols, eps);
  const auto put = [&](int64_t i, float value) {
    const float scaled = value * scale * weight[i];
    to[i] = bias == nullptr ? scaled : scaled + bias[i];
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t i = threadIdx.x + k * kThreads;
    if (i < cols) put(i, kept[k]);
  }
  for (int64_t i = threadIdx.x + kKept * kThreads; i < cols; i += kThreads) put(i, normed[i]);
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_heads_kernel(Rows x, Rows y, const float* weight, int64_t rows, int64_t heads, int64_t size, float eps) {
  wait_for_earlier_kernels();
  const int64_t head = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (head >= rows * heads) return;
  const float* from = x[head / heads] + head % heads * size;
  float* to = y[head / heads] + head % heads * size;
  const float scale = warp_rms_scale(from, size, eps);
  for (int64_t i = threadIdx.x % kWarp; i < size; i += kWarp) to[i] = from[i] * scale * weight[i];
}

GridShape block_a_row(const choral_matrix& x) {
  return {dim3(static_cast<unsigned>(x.rows)), dim3(kThreads), kThreads / kWarp * sizeof(float)};
}

cudaError_t add_norm(const Launch& launch, const choral_rms_norm_args& a, const float* bias) {
  if (a.x.rows == 0) return cudaSuccess;
  return launch_kernel(rms_norm_kernel<true>, block_a_row(a.x), launch, Rows(a.x), Rows(a.residual), Rows(a.y),
                       static_cast<const float*>(a.weight.data), bias, a.x.cols, a.eps);
}

}  // namespace

cudaError_t rms_norm(const Launch& launch, const choral_rms_norm_args& a) {
  if (a.x.rows == 0) return cudaSuccess;
  const float* const no_bias = nullptr;
  return launch_kernel(rms_norm_kernel<false>, block_a_row(a.x), launch, Rows(a.x), Rows(a.x), Rows(a.y),
                       static_cast<const float*>(a.weight.data), no_bias, a.x.cols, a.eps);
}

cudaError_t add_rms_norm(const Launch& launch, const choral_rms_norm_args& a) { return add_norm(launch, a, nullptr); }

cudaError_t add_rms_norm_bias(const Launch& launch, const choral_rms_norm_args& a) {
  return add_norm(launch, a, static_cast<const float*>(a.bias.data));
}

cudaError_t rms_norm_heads(const Launch& launch, const choral_rms_norm_args& a) {
  if (a.x.rows == 0 || a.x.cols == 0) return cudaSuccess;
  const int64_t heads = a.x.cols / a.weight.size;
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(a.x.rows * heads, kThreads / kWarp));
  return launch_kernel(rms_norm_heads_kernel, {dim3(blocks), dim3(kThreads)}, launch, Rows(a.x), Rows(a.y),
                       static_cast<const float*>(a.weight.data), a.x.rows, heads, a.weight.size, a.eps);
}

}  // namespace choral_cuda
