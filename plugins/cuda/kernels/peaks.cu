// What the device gives at most, as kernels here could have it: loads that bypass L1, and chains of the products that
// section_sums.h is made of, in registers (wgmma: and in shared memory, which is where it has x). Chains and warps are enough to
// hide every latency. Results are of use to nobody but the compiler, which drops work whose result is not used: ptxas even
// volatile mma.
#include "launch.h"
#include "peaks.h"
#include "ptx.h"
#include "wgmma.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 256, kBlocksOfSm = 4;  // 32 warps
constexpr uint32_t kNever = 0x9e3779b9;         // what no sum here is: without a use of it the compiler would drop the work

__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* memory, int64_t count, uint32_t* sink) {
  wait_for_earlier_kernels();
  constexpr int kAtOnce = 8;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  uint32_t all = 0;
  for (; at + (kAtOnce - 1) * step < count; at += kAtOnce * step) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) v[i] = load_streaming(memory + at + i * step);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) all ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  for (; at < count; at += step) {
    const uint4 v = load_streaming(memory + at);
    all ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (all == kNever) *sink = all;
}

constexpr int kFmaChains = 16, kMmaChains = 8;

__global__ void __launch_bounds__(kThreads) fma_kernel(int rounds, uint32_t* sink) {
  wait_for_earlier_kernels();
  float sums[kFmaChains];
  const float factor = 0.999f - 1e-6f * static_cast<float>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kFmaChains; ++i) sums[i] = static_cast<float>(i);
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kFmaChains; ++i) sums[i] = fmaf(sums[i], factor, 1e-4f);
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < kFmaChains; ++i) all += sums[i];
  if (__float_as_uint(all) == kNever) *sink = kNever;
}

__device__ __forceinline__ uint32_t bits(float sum) { return __float_as_uint(sum); }
__device__ __forceinline__ uint32_t bits(int32_t sum) { return static_cast<uint32_t>(sum); }

// Products of ones and minus ones.
template <class Sum, void (*mma)(Sum (&)[4], const uint32_t (&)[4], const uint32_t (&)[2])>
__global__ void __launch_bounds__(kThreads) mma_kernel(int rounds, uint32_t ones, uint32_t* sink) {
  wait_for_earlier_kernels();
  Sum sums[kMmaChains][4] = {};
  const uint32_t a[4] = {ones, ones, ones, ones}, b[2] = {ones, ones};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kMmaChains; ++i) mma(sums[i], a, b);
  }
  uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < kMmaChains * 4; ++i) all ^= bits(sums[i / 4][i % 4]);
  if (all == kNever) *sink = all;
}

constexpr int kWgmmaTiles = 16, kWgmmaChains = 2;  // of a warpgroup, two of which have a multiprocessor's registers
constexpr uint32_t kWgmmaColumnBytes = 2 * kCoreBytes;
constexpr size_t kWgmmaBytes = size_t{kWgmmaTiles} * kWgmmaColumnBytes;

template <class Sum, void (*wgmma)(WarpgroupSums<Sum, kWgmmaTiles>&, const uint32_t (&)[4], uint64_t)>
__global__ void __launch_bounds__(kThreads) wgmma_kernel(int rounds, uint32_t ones, uint32_t* sink) {
  wait_for_earlier_kernels();
  auto* b = shared_memory<uint32_t>();
  for (int i = threadIdx.x; i < static_cast<int>(kWgmmaBytes / sizeof *b); i += kThreads) b[i] = ones;
  show_to_products();
  __syncthreads();
  WarpgroupSums<Sum, kWgmmaTiles> sums[kWgmmaChains] = {};
  const auto hold_sums = [&] {
#pragma unroll
    for (int i = 0; i < kWgmmaChains * kWgmmaTiles * 4; ++i) {
      hold(sums[i / (4 * kWgmmaTiles)][i / 4 % kWgmmaTiles][i % 4]);
    }
  };
  hold_sums();
  const uint32_t a[4] = {ones, ones, ones, ones};
  const uint64_t where = core_matrices(shared_address(b), kCoreBytes, kWgmmaColumnBytes);
  for (int round = 0; round < rounds; ++round) {
    start_group();
#pragma unroll
    for (int i = 0; i < kWgmmaChains; ++i) wgmma(sums[i], a, where);
    end_group();
    wait_groups<1>();
  }
  wait_groups<0>();
  hold_sums();
  uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < kWgmmaChains * kWgmmaTiles * 4; ++i) {
    all ^= bits(sums[i / (4 * kWgmmaTiles)][i / 4 % kWgmmaTiles][i % 4]);
  }
  if (all == kNever) *sink = all;
}

}  // namespace

cudaError_t read_memory(const Launch& launch, const void* memory, size_t bytes, void* sink) {
  return launch_kernel(read_kernel, {dim3(static_cast<unsigned>(launch.sm_count * kBlocksOfSm)), dim3(kThreads)}, launch,
                       static_cast<const uint4*>(memory), static_cast<int64_t>(bytes / sizeof(uint4)),
                       static_cast<uint32_t*>(sink));
}

double operations(const Launch& launch, Unit unit, int rounds) {
  constexpr double kMultiplyAdd = 2, kMma = kMultiplyAdd * 16 * 8;
  if (launch.has_wgmma && unit != Unit::kF32) {
    constexpr double kWgmma = kMultiplyAdd * kWarpgroupRows * kWgmmaTiles * 8;
    return kWgmma * (unit == Unit::kBf16 ? 16 : 32) * kWgmmaChains * rounds * launch.sm_count * (kThreads / kWarpgroup);
  }
  const double of_warp = unit == Unit::kF32    ? kMultiplyAdd * kWarp * kFmaChains
                         : unit == Unit::kBf16 ? kMma * 16 * kMmaChains
                                               : kMma * 32 * kMmaChains;
  return of_warp * rounds * launch.sm_count * kBlocksOfSm * (kThreads / kWarp);
}

cudaError_t compute(const Launch& launch, Unit unit, int rounds, void* sink) {
  const GridShape shape{dim3(static_cast<unsigned>(launch.sm_count * kBlocksOfSm)), dim3(kThreads)};
  auto* never = static_cast<uint32_t*>(sink);
  constexpr uint32_t kBf16Ones = 0x3f80bf80u, kInt8Ones = 0x01ff01ffu;
  if (launch.has_wgmma && unit != Unit::kF32) {
    const GridShape one{dim3(static_cast<unsigned>(launch.sm_count)), dim3(kThreads), kWgmmaBytes};
    return unit == Unit::kBf16 ? launch_kernel(wgmma_kernel<float, wgmma_bf16>, one, launch, rounds, kBf16Ones, never)
                               : launch_kernel(wgmma_kernel<int32_t, wgmma_s8>, one, launch, rounds, kInt8Ones, never);
  }
  switch (unit) {
    case Unit::kF32: return launch_kernel(fma_kernel, shape, launch, rounds, never);
    case Unit::kBf16: return launch_kernel(mma_kernel<float, mma_bf16>, shape, launch, rounds, kBf16Ones, never);
    case Unit::kInt8: return launch_kernel(mma_kernel<int32_t, mma_s8>, shape, launch, rounds, kInt8Ones, never);
  }
  return cudaErrorInvalidValue;
}

}  // namespace choral_cuda
