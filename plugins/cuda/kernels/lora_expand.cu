// y (+)= x·Bᵀ on tensor cores: rows of x are mma's rows, outputs its columns. x is two planes of bf16, and so are stacks of f32
// and f16: 16 bits of each number.
//
// A row's sum is one chain over the rank, however its slot was named and whoever is beside it. Within 16 ranks a lane's four lie
// beside each other, so that it loads 8 bytes or more. What lies beyond a slot's rank is not read. It would add zeros, which
// change no sum but −0: so that becomes +0.
#include "lora_adapters.h"

namespace choral_cuda {
namespace {

constexpr int kRowsOfTile = 16, kTileOutputs = 8;  // of mma
constexpr int kRankStep = 16, kLaneRanks = 4;
constexpr int kThreads = 128, kWarps = kThreads / kWarp;

// Two outputs of a row, of which `left` are there. has_pairs: they lie at a multiple of 8 bytes.
__device__ __forceinline__ float2 load_outputs(const float* y, int64_t left, bool has_pairs) {
  if (has_pairs && left > 1) return *reinterpret_cast<const float2*>(y);
  return make_float2(left > 0 ? y[0] : 0.0f, left > 1 ? y[1] : 0.0f);
}
__device__ __forceinline__ void store_outputs(float* y, int64_t left, bool has_pairs, float2 values) {
  if (has_pairs && left > 1) {
    *reinterpret_cast<float2*>(y) = values;
    return;
  }
  if (left > 0) y[0] = values.x;
  if (left > 1) y[1] = values.y;
}

// A block has kRows rows, all of mma's or one, and tiles · 8 outputs for each of its warps.
template <int dtype, bool vectors, int kRows, int tiles>
__global__ void __launch_bounds__(kThreads) expand_kernel(const __grid_constant__ Adapters a) {
  const Slice& s = a.slice_of(blockIdx.y);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int64_t first_output = (int64_t{blockIdx.y - s.first_block} * kWarps + warp) * tiles * kTileOutputs;
  auto* slots = shared_memory<int32_t>();
  slots_of<kRows>(a, s, first_row, slots);
  if (kRows == 1 && slots[0] >= 0)
    fetch<dtype>(s, slots[0], s.stack.rows, first_output, tiles * kTileOutputs, 0, s.rank(slots[0]));
  wait_for_earlier_kernels();
  const bool has_pairs = (a.whole.stride | s.y_begin) % 2 == 0 && reinterpret_cast<uintptr_t>(a.whole.data) % 8 == 0;
  for (int r = 0; r < kRows; ++r) {
    const int32_t slot = slots[r];
    if (!is_first_of_slot(slots, r)) continue;
    const int64_t rank = s.rank(slot), row_bytes = s.stack.cols * kElementBytes<dtype>;
    const unsigned char* b = s.stack.data + slot * s.stack.rows * row_bytes;
    bool mine[2];  // rows g and g + 8
#pragma unroll
    for (int i = 0; i < 2; ++i) mine[i] = g + 8 * i < kRows && slots[g + 8 * i] == slot;
    // All that was there before is on its way before anything is stored: the compiler can't tell them apart.
    float2 before[2][tiles] = {};
    const auto y_of = [&](int i) { return a.whole[first_row + g + 8 * i] + s.y_begin; };
    const auto output_of = [&](int n) { return first_output + n * kTileOutputs + t * 2; };
    if (a.add) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int n = 0; n < tiles; ++n) {
          if (mine[i]) before[i][n] = load_outputs(y_of(i) + output_of(n), s.stack.rows - output_of(n), has_pairs);
        }
      }
    }
    float c[tiles][4] = {};
    for (int64_t first = 0; first < rank; first += kRankStep) {
      const int64_t k = first + t * kLaneRanks;
      LanePairs<dtype, kLaneRanks> w[tiles];
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        const int64_t output = first_output + n * kTileOutputs + g;
        w[n].template load<vectors>(b + output * row_bytes, k, output < s.stack.rows ? rank : 0);
      }
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        LanePairs<CHORAL_F32, kLaneRanks> x;
        x.template load<false>(reinterpret_cast<const unsigned char*>(s.middle[first_row + g + 8 * i]), k, mine[i] ? rank : 0);
        x.split(0, &high[i], &low[i]), x.split(1, &high[2 + i], &low[2 + i]);
      }
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        uint32_t high_b[2], low_b[2];
        w[n].split(0, &high_b[0], &low_b[0]), w[n].split(1, &high_b[1], &low_b[1]);
        mma_bf16(c[n], high, high_b);
        mma_bf16(c[n], low, high_b);
        if (dtype != CHORAL_BF16) mma_bf16(c[n], high, low_b);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!mine[i]) continue;
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        float2 sum = make_float2(c[n][2 * i] + 0.0f, c[n][2 * i + 1] + 0.0f);
        if (a.add) sum = make_float2(before[i][n].x + sum.x, before[i][n].y + sum.y);
        store_outputs(y_of(i) + output_of(n), s.stack.rows - output_of(n), has_pairs, sum);
      }
    }
  }
}

constexpr int kTilesOfFew = 2, kTilesOfMany = 4;
constexpr int64_t outputs_of_block(bool many) { return kWarps * kTileOutputs * (many ? kTilesOfMany : kTilesOfFew); }

template <int dtype, bool vectors>
cudaError_t launch_expand(const Launch& launch, const Adapters& a, bool many) {
  const auto shape = [&](int rows) {
    return GridShape{dim3(static_cast<unsigned>(ceil_div<int64_t>(a.rows, rows)), a.block_count), dim3(kThreads),
                     kRowsOfTile * sizeof(int32_t)};
  };
  if (many) return launch_kernel(expand_kernel<dtype, vectors, kRowsOfTile, kTilesOfMany>, shape(kRowsOfTile), launch, a);
  return launch_kernel(expand_kernel<dtype, vectors, 1, kTilesOfFew>, shape(1), launch, a);
}

}  // namespace

cudaError_t expand(const Launch& launch, std::span<const choral_lora_args> slices, bool by_sequence) {
  Adapters a(launch, slices.front(), Direction::kExpand, by_sequence);
  int64_t outputs = 0;
  for (const choral_lora_args& slice : slices) outputs += slice.stack.rows;
  // Several rows at a time where that leaves the device busy; the bits are the same.
  const bool many = a.rows / kRowsOfTile * outputs / outputs_of_block(true) >= 2 * int64_t{launch.sm_count};
  a.append(slices, Direction::kExpand, outputs_of_block(many));
  if (a.rows == 0 || a.slice_count == 0) return cudaSuccess;
  const bool vectors = takes_vectors(a);
  return for_dtype(slices.front().stack.dtype, [&]<int dtype>() {
    return vectors ? launch_expand<dtype, true>(launch, a, many) : launch_expand<dtype, false>(launch, a, many);
  });
}

}  // namespace choral_cuda
