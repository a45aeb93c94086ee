// y = scaling·x·Aᵀ on tensor cores: sixteen rows of A are mma's rows, rows of x its columns. x is two planes of bf16, and so are
// stacks of f32 and f16: 16 bits of each number.
//
// A row's sums have one order, however its slot was named and whoever is beside it: k is cut into sections of 256 columns, each
// one chain of sums, which are added in order. Within 32 columns a lane's eight lie beside each other, so that it loads 16 bytes
// or more: products do not ask which k is where, as long as A and x agree. What lies beyond a slot's rank is not read; its y is
// 0.
#include "lora_adapters.h"

namespace choral_cuda {
namespace {

constexpr int kTileRanks = 16, kRowsOfTile = 8;  // of mma: rows of A, rows of x
constexpr int kStepColumns = 32, kSectionColumns = 256;
constexpr int kWarps = 16, kThreads = kWarps * kWarp;  // a section each
constexpr int kTileSums = kTileRanks * kRowsOfTile;

// What a lane multiplies in 32 columns: eight of two rows of A, and of one of x.
template <int dtype>
struct StepOperands {
  LanePairs<dtype, kLaneColumns> upper, lower;
  LanePairs<CHORAL_F32, kLaneColumns> x;

  __device__ __forceinline__ void multiply(float (&c)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = half * 2;
      uint32_t high_a[4], low_a[4], high_x[2], low_x[2];
      upper.split(i, &high_a[0], &low_a[0]), lower.split(i, &high_a[1], &low_a[1]);
      upper.split(i + 1, &high_a[2], &low_a[2]), lower.split(i + 1, &high_a[3], &low_a[3]);
      x.split(i, &high_x[0], &low_x[0]), x.split(i + 1, &high_x[1], &low_x[1]);
      mma_bf16(c, high_a, high_x);
      mma_bf16(c, high_a, low_x);
      if (dtype != CHORAL_BF16) mma_bf16(c, low_a, high_x);
    }
  }
};

// One section's sums: of rows first_j and on of the slot's A, and of the tile's rows of x; the lane's own, where it is not null.
template <int dtype, bool vectors, int kRows>
__device__ __forceinline__ void sum_section(const Slice& s, int32_t slot, int64_t first_j, const float* x, int64_t begin,
                                            float (&c)[4]) {
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int64_t cols = s.stack.cols, row_bytes = cols * kElementBytes<dtype>;
  const unsigned char* a = s.stack.data + (slot * s.stack.rows + first_j + g) * row_bytes;
  const int64_t ranks = s.rank(slot) - first_j;
  const int64_t cols_of_upper = g < ranks ? cols : 0, cols_of_lower = g + 8 < ranks ? cols : 0;
  constexpr int kSteps = kSectionColumns / kStepColumns;
  constexpr int kAtOnce = dtype == CHORAL_F32 && kRows > 1 ? 2 : 4;  // loads under way before the first is used
#pragma unroll
  for (int first = 0; first < kSteps; first += kAtOnce) {
    StepOperands<dtype> steps[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t k = begin + (first + i) * kStepColumns + t * kLaneColumns;
      steps[i].upper.template load<vectors>(a, k, cols_of_upper);
      steps[i].lower.template load<vectors>(a + 8 * row_bytes, k, cols_of_lower);
      steps[i].x.template load<vectors>(reinterpret_cast<const unsigned char*>(x), k, x == nullptr ? 0 : cols);
    }
#pragma unroll
    for (const StepOperands<dtype>& step : steps) step.multiply(c);
  }
}

// A block has a tile of ranks, and of kRows rows: all of mma's columns, or one.
template <int dtype, bool vectors, int kRows>
__global__ void __launch_bounds__(kThreads) shrink_kernel(const __grid_constant__ Adapters a) {
  const Slice& s = a.slice_of(blockIdx.y);
  const int64_t first_j = int64_t{blockIdx.y - s.first_block} * kTileRanks, first_row = int64_t{blockIdx.x} * kRows;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, row_of_lane = lane / 4;
  auto* parts = shared_memory<float>();  // [section of this round][rank][row]
  auto* slots = reinterpret_cast<int32_t*>(parts + kWarps * kTileSums);
  slots_of<kRows>(a, s, first_row, slots);
  if (kRows == 1 && slots[0] >= 0)
    fetch<dtype>(s, slots[0], s.rank(slots[0]), first_j, kTileRanks, warp * kSectionColumns, kSectionColumns);
  wait_for_earlier_kernels();
  for (int r = 0; r < kRows; ++r) {
    const int32_t slot = slots[r];
    if (!is_first_of_slot(slots, r)) continue;
    const float* x = row_of_lane < kRows && slots[row_of_lane] == slot ? a.whole[first_row + row_of_lane] : nullptr;
    const int64_t cols = first_j < s.rank(slot) ? s.stack.cols : 0;
    float total = 0.0f;  // of a thread's rank and row
    for (int64_t round = 0; round < cols; round += kWarps * kSectionColumns) {
      float c[4] = {};
      const int64_t begin = round + warp * kSectionColumns;
      if (begin < cols) sum_section<dtype, vectors, kRows>(s, slot, first_j, x, begin, c);
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[warp * kTileSums + (row_of_lane + i / 2 * 8) * kRowsOfTile + lane % 4 * 2 + i % 2] = c[i];
      __syncthreads();
      if (threadIdx.x < kTileSums) {
#pragma unroll
        for (int section = 0; section < kWarps; ++section) total += parts[section * kTileSums + threadIdx.x];
      }
      __syncthreads();
    }
    const int row = threadIdx.x % kRowsOfTile;
    const int64_t j = first_j + threadIdx.x / kRowsOfTile;
    if (threadIdx.x < kTileSums && row < kRows && slots[row] == slot && j < s.stack.rows)
      s.middle[first_row + row][j] = a.scaling * total;
  }
}

// Rows of a tile share what is read of A where they have one slot, as a prompt's do, and take turns where each has its own. So
// prompts are taken a tile at a time unless the device has room for all rows at once, others where tiles leave it busy. The bits
// are the same.
template <int dtype, bool vectors>
cudaError_t launch_shrink(const Launch& launch, const Adapters& a, bool has_prompts) {
  constexpr size_t kSharedBytes = kWarps * kTileSums * sizeof(float) + kRowsOfTile * sizeof(int32_t);
  const auto shape = [&](int rows) {
    return GridShape{dim3(static_cast<unsigned>(ceil_div<int64_t>(a.rows, rows)), a.block_count), dim3(kThreads), kSharedBytes};
  };
  if (a.rows / (has_prompts ? 1 : kRowsOfTile) * a.block_count >= launch.sm_count)
    return launch_kernel(shrink_kernel<dtype, vectors, kRowsOfTile>, shape(kRowsOfTile), launch, a);
  return launch_kernel(shrink_kernel<dtype, vectors, 1>, shape(1), launch, a);
}

}  // namespace

cudaError_t shrink(const Launch& launch, std::span<const choral_lora_args> slices, bool by_sequence) {
  Adapters a(launch, slices.front(), Direction::kShrink, by_sequence);
  a.append(slices, Direction::kShrink, kTileRanks);
  if (a.rows == 0 || a.slice_count == 0) return cudaSuccess;
  const bool has_prompts = by_sequence && slices.front().max_length >= kRowsOfTile;
  const bool vectors = is_aligned(a.whole.data) && a.whole.stride % 4 == 0 && takes_vectors(a);
  return for_dtype(slices.front().stack.dtype, [&]<int dtype>() {
    return vectors ? launch_shrink<dtype, true>(launch, a, has_prompts) : launch_shrink<dtype, false>(launch, a, has_prompts);
  });
}

}  // namespace choral_cuda
