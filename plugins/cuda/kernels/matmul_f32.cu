// Weights of 32 bits, multiplied in float: a lane has a row of W and half the rows of a tile of x, a warp a section of k. The
// sums of a section are one chain of fused multiply-adds; sections are added in order.
#include "matmul_inl.h"

namespace choral_cuda {
namespace {

constexpr int kTokensOfLane = kTokens / 2;

struct F32Operand {
  using Sum = float;
  static constexpr Format kFormat = Format::kF32;
  static constexpr int kXVectors = 4;
};

template <int most>
__global__ void __launch_bounds__(kMatmulThreads) f32_kernel(const __grid_constant__ Products<most> products) {
  wait_for_earlier_kernels();
  const int product = products.find(blockIdx.y);
  const PackedWeight w = products.weight(product);
  const PreparedX x = products.x(product);
  const int64_t tile = int64_t{blockIdx.y} - products.first_tile(product);
  float* parts = shared_memory<float>();  // [section][token][row]
  const int section = threadIdx.x / kWarp, row = threadIdx.x % kTileRows, half = threadIdx.x % kWarp / kTileRows;
  const int begin = section * w.section_blocks;
  const int end = begin + w.section_blocks < w.blocks ? begin + w.section_blocks : w.blocks;
  const unsigned char* record = w.image + int64_t{blockIdx.x} * w.tile_bytes;
  float acc[kTokensOfLane] = {};
  for (int block = begin; block < end; ++block) {
    const auto* weights = reinterpret_cast<const float4*>(record + int64_t{block} * block_bytes(F32Operand::kFormat)) + row;
    const auto* tokens = reinterpret_cast<const float4*>(x.block<F32Operand>(tile, block)) + half * kTokensOfLane * 16;
#pragma unroll 4
    for (int k4 = 0; k4 < kBlockColumns / 4; ++k4) {
      const float4 a = weights[k4 * kTileRows];
#pragma unroll
      for (int i = 0; i < kTokensOfLane; ++i) {
        const float4 b = tokens[i * 16 + k4];
        acc[i] = fmaf(a.x, b.x, acc[i]);
        acc[i] = fmaf(a.y, b.y, acc[i]);
        acc[i] = fmaf(a.z, b.z, acc[i]);
        acc[i] = fmaf(a.w, b.w, acc[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTokensOfLane; ++i) parts[(section * kTokens + half * kTokensOfLane + i) * kTileRows + row] = acc[i];
  __syncthreads();
  const int64_t token = tile * kTokens + threadIdx.x / kTileRows;
  const int64_t n = int64_t{blockIdx.x} * kTileRows + threadIdx.x % kTileRows;
  if (threadIdx.x >= kTokens * kTileRows || token >= x.rows || n >= w.rows) return;
  float total = 0.0f;
  for (int s = 0; s < ceil_div(w.blocks, w.section_blocks); ++s) add_section(total, parts[s * kTokens * kTileRows + threadIdx.x]);
  finish<F32Operand>(w, x, products.output(product), token, n, total);
}

template <int most>
cudaError_t launch_f32(const Launch& launch, const Products<most>& p) {
  const dim3 blocks(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, kTileRows)), static_cast<unsigned>(p.tile_count));
  const size_t shared_bytes = size_t{kSections} * kTokens * kTileRows * sizeof(float);
  return launch_kernel(f32_kernel<most>, {blocks, dim3(kMatmulThreads), shared_bytes}, launch, p);
}

}  // namespace

const OperandMatmul kMatmulF32 = {launch_f32<1>, launch_f32<kMostProducts>};

}  // namespace choral_cuda
