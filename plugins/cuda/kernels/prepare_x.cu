// Activations for products (prepared_x.h). A block is a tile of 8 rows and as many blocks of 64 columns as it has warps. Where a
// row's largest element matters it is found in integers: the bits of |x| are in order. Of few rows each block looks for it in the
// whole rows, which is sooner done than another launch; of more a kernel before has.
#include "matmul.h"
#include "ptx.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kNaN = 0x7fc00000u;

struct Source {
  Rows x;  // from the first row that is prepared
  int64_t rows, cols;
  const int32_t* k_order;

  template <int most>
  __device__ __forceinline__ Source(const Products<most>& products, int product)
      : x(products.of[product].x, products.x_stride),
        rows(products.of[product].rows),
        cols(products.form.cols),
        k_order(products.of[product].k_order) {}

  __device__ __forceinline__ float at(int64_t row, int64_t column) const {
    if (row >= rows || column >= cols) return 0.0f;
    return x[row][k_order == nullptr ? column : k_order[column]];
  }
};

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

__device__ __forceinline__ uint32_t warp_largest(uint32_t mine) {
  for (int step = kWarp / 2; step > 0; step /= 2) mine = larger(mine, __shfl_xor_sync(kAllLanes, mine, step));
  return mine;
}

__device__ __forceinline__ uint32_t bits_of_magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// |x| as bits of the largest element of each of the tile's rows; more than kInfinity: a NaN.
__device__ void find_largest(const Source& x, int64_t first_row, uint32_t (&largest)[kTokens]) {
  uint32_t* shared = shared_memory<uint32_t>();  // [kWarps][kTokens]
  uint32_t mine[kTokens] = {};
  for (int64_t k = threadIdx.x; k < x.cols; k += kThreads) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      mine[i] = larger(mine[i], bits_of_magnitude(first_row + i < x.rows ? x.x[first_row + i][k] : 0.0f));
    }
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    mine[i] = warp_largest(mine[i]);
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp * kTokens + i] = mine[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    largest[i] = 0;
    for (int warp = 0; warp < kWarps; ++warp) largest[i] = larger(largest[i], shared[warp * kTokens + i]);
  }
}

// The same for all rows, a block each, into PreparedX::largest.
template <int most>
__global__ void __launch_bounds__(kThreads) find_largest_kernel(const __grid_constant__ Products<most> products) {
  wait_for_earlier_kernels();
  uint32_t* shared = shared_memory<uint32_t>();  // [kWarps]
  const int64_t tile = blockIdx.x / kTokens;
  const int product = products.find(tile);
  const Source x(products, product);
  const int64_t row = int64_t{blockIdx.x} - int64_t{products.first_tile(product)} * kTokens;
  if (row >= x.rows) return;
  uint32_t mine = 0;
  for (int64_t k = threadIdx.x; k < x.cols; k += kThreads) mine = larger(mine, bits_of_magnitude(x.x[row][k]));
  mine = warp_largest(mine);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) mine = larger(mine, shared[warp]);
  products.x(product).largest[row] = mine;
}

// Of row g of a tile.
template <int most>
__device__ __forceinline__ uint32_t largest_of(const Products<most>& products, const Source& x, const PreparedX& to, int64_t tile,
                                               int g) {
  if (products.knows_largest != 0) return tile * kTokens + g < x.rows ? to.largest[tile * kTokens + g] : 0;
  uint32_t all[kTokens], largest = 0;
  find_largest(x, tile * kTokens, all);
#pragma unroll
  for (int i = 0; i < kTokens; ++i) largest = i == g ? all[i] : largest;
  return largest;
}

// A power of two that brings the largest element to between 2^14 and 2^15; 1 for rows of zeros and without a number.
__device__ __forceinline__ float power_for_f16(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 23);
  if (exponent == 0 || exponent == 255) return 1.0f;
  const int wanted = 127 + 14 - (exponent - 127);
  return __uint_as_float(static_cast<uint32_t>(wanted < 1 ? 1 : wanted > 253 ? 253 : wanted) << 23);
}

// x rounded to int8 by blocks of 32: four lanes of two steps have one.
__device__ __forceinline__ void round_blocks(float (&v)[4][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t largest = 0;
    for (int i = 0; i < 8; ++i) {
      largest = larger(largest, bits_of_magnitude(v[half * 2 + i / 4][i % 4]));
    }
    for (int step = 1; step < 4; step *= 2) largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, step));
    const float scale = largest >= kInfinity ? __uint_as_float(kNaN) : __uint_as_float(largest) / 127.0f;
    for (int i = 0; i < 8; ++i) {
      float& x = v[half * 2 + i / 4][i % 4];
      x = scale == 0.0f ? 0.0f : fminf(fmaxf(rintf(x / scale), -127.0f), 127.0f) * scale;
    }
  }
}

template <bool f16>
__device__ __forceinline__ uint4 two_planes(const float (&v)[4]) {
  uint4 out;
  if (f16) {
    out.x = pack_f16(v[0], v[1]);
    out.y = pack_f16(v[2], v[3]);
    out.z = pack_f16(v[0] - low_f16(out.x), v[1] - high_f16(out.x));
    out.w = pack_f16(v[2] - low_f16(out.y), v[3] - high_f16(out.y));
  } else {
    out.x = pack_bf16(v[0], v[1]);
    out.y = pack_bf16(v[2], v[3]);
    out.z = pack_bf16(v[0] - low_bf16(out.x), v[1] - high_bf16(out.x));
    out.w = pack_bf16(v[2] - low_bf16(out.y), v[3] - high_bf16(out.y));
  }
  return out;
}

// Of the planes of a tile's block, whose sums over folds a weight with minima is multiplied by.
template <int planes>
__device__ __forceinline__ void sum_folds(const uint4 (&x)[4], int steps_of_fold, float* to) {
  constexpr uint32_t kOnes[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  const int lane = threadIdx.x % kWarp;
  float sum[4] = {};
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint32_t high[2] = {x[step].x, x[step].y}, low[2] = {x[step].z, x[step].w};
    mma_bf16(sum, kOnes, high);
    if constexpr (planes == 2) mma_bf16(sum, kOnes, low);
    if ((step + 1) % steps_of_fold != 0) continue;
    if (lane < 4) *reinterpret_cast<float2*>(to + step / steps_of_fold * kTokens + lane * 2) = make_float2(sum[0], sum[1]);
    sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
  }
}

template <bool f16, int planes, int most>
__global__ void __launch_bounds__(kThreads)
    prepare_planes_kernel(const __grid_constant__ Products<most> products, bool by_int8_blocks) {
  wait_for_earlier_kernels();
  const int product = products.find(blockIdx.x);
  const Source x(products, product);
  const PreparedX to = products.x(product);
  const int64_t tile = int64_t{blockIdx.x} - products.first_tile(product),
                block = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp;
  if (tile >= to.row_tiles) return;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  float power = 1.0f;
  if (f16) power = power_for_f16(largest_of(products, x, to, tile, g));
  if (blockIdx.y == 0 && threadIdx.x / kWarp == 0 && t == 0) to.factors[tile * kTokens + g] = 1.0f / power;
  if (block >= to.blocks) return;
  float v[4][4];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[step][i] = x.at(tile * kTokens + g, block * kBlockColumns + step * 16 + 2 * t + i / 2 * 8 + i % 2) * power;
    }
  }
  if (by_int8_blocks) round_blocks(v);
  uint4 both[4];
#pragma unroll
  for (int step = 0; step < 4; ++step) both[step] = two_planes<f16>(v[step]);
  if (const int sums = fold_sums_of_block(products.form); !f16 && sums != 0) {
    const int group_tiles = products.by_warpgroups != 0 ? products.block_tiles : 1;
    sum_folds<planes>(both, 4 * kTokens / sums, to.fold_sums_of(group_tiles, tile, block, sums));
  }
  if (products.by_warpgroups != 0) {
    const int parts = parts_of_block(products.block_tiles, planes), steps_of_part = 4 / parts;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      unsigned char* part = to.part(products.block_tiles, parts, 1024 * planes / parts, tile, block, step / steps_of_part);
      uint32_t* cores = reinterpret_cast<uint32_t*>(part) + step % steps_of_part * 2 * kWarp + lane;
      cores[0] = both[step].x;
      cores[kWarp] = both[step].y;
      if constexpr (planes == 2) {
        cores[steps_of_part * 2 * kWarp] = both[step].z;
        cores[(steps_of_part * 2 + 1) * kWarp] = both[step].w;
      }
    }
    return;
  }
  auto* out = reinterpret_cast<uint4*>(to.tiles + (tile * to.blocks + block) * 1024 * planes);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if constexpr (planes == 2) {
      out[step * kWarp + lane] = both[step];
    } else if (step % 2 == 0) {
      out[step / 2 * kWarp + lane] = make_uint4(both[step].x, both[step].y, both[step + 1].x, both[step + 1].y);
    }
  }
}

// How one row becomes int8.
struct Int8Row {
  float step, offset, least;
  bool zero;

  __device__ __forceinline__ uint32_t byte(float x) const {
    if (zero) return 0;
    const float q = fminf(fmaxf(rintf(x / step) + offset, least), 127.0f);
    return static_cast<uint32_t>(static_cast<int32_t>(q)) & 0xffu;
  }
};

template <int most>
__global__ void __launch_bounds__(kThreads) prepare_int8_kernel(const __grid_constant__ Products<most> products) {
  wait_for_earlier_kernels();
  const int product = products.find(blockIdx.x);
  const Source x(products, product);
  const PreparedX to = products.x(product);
  const int64_t tile = int64_t{blockIdx.x} - products.first_tile(product),
                block = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp;
  if (tile >= to.row_tiles) return;
  const bool fixed = products.form.has_fixed_input != 0;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const uint32_t largest = largest_of(products, x, to, tile, g);
  const bool finite = largest < kInfinity;
  const float step = fixed ? products.of[product].input_scale : __uint_as_float(largest) / 127.0f;
  const Int8Row row{step, fixed ? static_cast<float>(products.of[product].input_offset) : 0.0f, fixed ? -128.0f : -127.0f,
                    !finite || !(step > 0.0f)};
  if (blockIdx.y == 0 && threadIdx.x / kWarp == 0 && t == 0) {
    to.factors[tile * kTokens + g] = !finite ? __uint_as_float(kNaN) : fixed ? 1.0f : step;
  }
  if (block >= to.blocks) return;
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // k32 i / 2, register i % 2
    const int64_t k = block * kBlockColumns + i / 2 * 32 + i % 2 * 16 + t * 4;
    words[i] = 0;
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      if (k + byte < x.cols) words[i] |= row.byte(x.at(tile * kTokens + g, k + byte)) << 8 * byte;
    }
  }
  if (products.by_warpgroups != 0) {
    auto* cores = reinterpret_cast<uint32_t*>(to.part(products.block_tiles, 1, 512, tile, block, 0)) + lane;
#pragma unroll
    for (int i = 0; i < 4; ++i) cores[i * kWarp] = words[i];
    return;
  }
  reinterpret_cast<uint4*>(to.tiles + (tile * to.blocks + block) * 512)[lane] =
      make_uint4(words[0], words[1], words[2], words[3]);
}

template <int most>
__global__ void __launch_bounds__(kThreads) prepare_f32_kernel(const __grid_constant__ Products<most> products) {
  wait_for_earlier_kernels();
  const int product = products.find(blockIdx.x);
  const Source x(products, product);
  const PreparedX to = products.x(product);
  const int64_t tile = int64_t{blockIdx.x} - products.first_tile(product), block = blockIdx.y;
  if (tile >= to.row_tiles) return;
  float* out = reinterpret_cast<float*>(to.tiles + (tile * to.blocks + block) * 2048);
  for (int i = threadIdx.x; i < kTokens * kBlockColumns; i += kThreads) {
    out[i] = x.at(tile * kTokens + i / kBlockColumns, block * kBlockColumns + i % kBlockColumns);
  }
  if (block == 0 && threadIdx.x < kTokens) to.factors[tile * kTokens + threadIdx.x] = 1.0f;
}

}  // namespace

template <int most>
cudaError_t prepare_x(const Launch& launch, const Products<most>& p) {
  const PackedWeight& w = p.form;
  const auto tiles = static_cast<unsigned>(p.tile_count), blocks = static_cast<unsigned>(w.blocks);
  const GridShape shape{dim3(tiles, ceil_div<unsigned>(blocks, kWarps)), dim3(kThreads), kWarps * kTokens * sizeof(uint32_t)};
  if (w.format == Format::kF32) {
    return launch_kernel(prepare_f32_kernel<most>, {dim3(tiles, blocks), dim3(kThreads)}, launch, p);
  }
  if (p.knows_largest != 0) {
    const GridShape rows{dim3(tiles * kTokens), dim3(kThreads), kWarps * sizeof(uint32_t)};
    if (const cudaError_t error = launch_kernel(find_largest_kernel<most>, rows, launch, p)) return error;
  }
  if (w.format == Format::kInt8Rows) return launch_kernel(prepare_int8_kernel<most>, shape, launch, p);
  const bool by_int8_blocks = w.activations == CHORAL_X_INT8_BLOCKS;
  const auto kernel = w.format == Format::kF16
                          ? (x_planes(w) == 1 ? prepare_planes_kernel<true, 1, most> : prepare_planes_kernel<true, 2, most>)
                          : (x_planes(w) == 1 ? prepare_planes_kernel<false, 1, most> : prepare_planes_kernel<false, 2, most>);
  return launch_kernel(kernel, shape, launch, p, by_int8_blocks);
}

template cudaError_t prepare_x(const Launch& launch, const Products<1>& products);
template cudaError_t prepare_x(const Launch& launch, const Products<kMostProducts>& products);

}  // namespace choral_cuda
