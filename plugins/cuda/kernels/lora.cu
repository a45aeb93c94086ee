// Adapters on stacks: the shrink y = scaling·x·Aᵀ, the expand y (+)= x·Bᵀ, the factor. All adapters of a call are one launch.
//
// A row's sums have one order, however its slot was named and whoever is beside it. Shrink: a warp has an element of y; each lane
// sums eight columns of every 256 in order, then the lanes are added (reduce.h). Expand: a thread has an element of y and sums
// the rank in order. Rows that follow each other in one slot share what is read of A and B (kRows of them); the sums stay their
// own. What lies beyond a slot's rank is not read. It would add zeros, which change no sum but −0: so an expand's becomes +0.
#include "ptx.h"
#include "reduce.h"
#include "rows.h"

namespace choral_cuda {
namespace {

constexpr int kShrinkThreads = 256, kShrinkWarps = kShrinkThreads / kWarp;
constexpr int kExpandThreads = 128;
constexpr int kLaneColumns = 8, kWarpColumns = kLaneColumns * kWarp;

struct Stack {
  const unsigned char* data;
  int64_t slots, rows, cols;
};

struct Adapters {
  Rows x, y;
  int64_t y_rows;
  Stack stack;
  const int32_t* slot_of;
  const int32_t* starts;  // null: slot_of is of rows
  const int32_t* lengths;
  int64_t sequence_count, slice_begin;
  float scaling;
  bool add;
  const int32_t* ranks;  // null: those of the stack
  int64_t most_rank;
  int32_t* fault;

  // `most`: the stack's rank; 0: it has none.
  Adapters(const Launch& launch, const choral_lora_args& a, bool by_sequence, int64_t most)
      : x(a.x),
        y(a.y),
        y_rows(a.y.rows),
        stack{static_cast<const unsigned char*>(a.stack.data), a.stack.slots, a.stack.rows, a.stack.cols},
        slot_of(a.slot_of),
        starts(by_sequence ? a.starts : nullptr),
        lengths(a.lengths),
        sequence_count(a.sequence_count),
        slice_begin(a.slice_begin),
        scaling(a.scaling),
        add(a.add != 0),
        ranks(most > 0 ? a.ranks : nullptr),
        most_rank(most),
        fault(launch.fault) {}

  // Of a slot that slot() gave.
  __device__ __forceinline__ int64_t rank(int32_t slot) const { return ranks == nullptr ? most_rank : ranks[slot]; }

  // The slot of a row, -1: none. All lanes of a warp ask together.
  __device__ __forceinline__ int32_t slot(int64_t row) const {
    int32_t slot = -1;
    if (starts == nullptr) {
      slot = row < y_rows ? slot_of[row] : -1;
    } else {
      for (int64_t i = threadIdx.x % kWarp; i < sequence_count; i += kWarp) {
        const int64_t start = starts[i], length = lengths[i];
        if (start < 0 || length < 0 || start + length > y_rows) {
          report(fault, kAdapterBeyond);
        } else if (row >= start && row < start + length) {
          slot = slot_of[i] < -1 ? static_cast<int32_t>(stack.slots) : slot_of[i];
        }
      }
      for (int step = kWarp / 2; step > 0; step /= 2) {
        const int32_t other = __shfl_xor_sync(kAllLanes, slot, step);
        slot = other > slot ? other : slot;
      }
    }
    const bool there = slot >= -1 && slot < stack.slots;
    if (!there || (slot >= 0 && (rank(slot) < 0 || rank(slot) > most_rank))) {
      report(fault, kAdapterBeyond);
      return -1;
    }
    return slot;
  }
};

template <int dtype>
constexpr int kElementBytes = dtype == CHORAL_F32 ? 4 : 2;

template <int dtype>
__device__ __forceinline__ float element(const unsigned char* from, int64_t at) {
  if (dtype == CHORAL_F32) return reinterpret_cast<const float*>(from)[at];
  const uint16_t half = reinterpret_cast<const uint16_t*>(from)[at];
  return dtype == CHORAL_F16 ? widen_f16(half) : low_bf16(half);
}

// Eight elements from `at` on, of which those from `end` on are 0. vectors: they are aligned to 16 bytes and whole.
template <int dtype, bool vectors>
__device__ __forceinline__ void load_8(const unsigned char* from, int64_t at, int64_t end, float (&out)[kLaneColumns]) {
  if (!vectors) {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) out[i] = at + i < end ? element<dtype>(from, at + i) : 0.0f;
  } else if (dtype == CHORAL_F32) {
    const auto* v = reinterpret_cast<const float4*>(from + at * 4);
    const float4 a = v[0], b = v[1];
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
  } else {
    const uint4 v = *reinterpret_cast<const uint4*>(from + at * 2);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = dtype == CHORAL_F16 ? low_f16(words[i]) : low_bf16(words[i]);
      out[2 * i + 1] = dtype == CHORAL_F16 ? high_f16(words[i]) : high_bf16(words[i]);
    }
  }
}

// Calls all(first, slot) where a tile of rows has one slot, else one(row, slot) for each row that has one.
template <int kRows, class One, class All>
__device__ __forceinline__ void for_runs(const Adapters& a, int64_t first, One one, All all) {
  int32_t slots[kRows];
  bool same = true;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    slots[i] = a.slot(first + i);
    same = same && slots[i] == slots[0];
  }
  if (same) {
    if (slots[0] >= 0) all(first, slots[0]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (slots[i] >= 0) one(first + i, slots[i]);
  }
}

template <int dtype, bool vectors, int count>
__device__ __forceinline__ void shrink_rows(const Adapters& a, int64_t first, int32_t slot, int64_t j) {
  const unsigned char* weights = a.stack.data + (slot * a.stack.rows + j) * a.stack.cols * kElementBytes<dtype>;
  const int64_t cols = j < a.rank(slot) ? a.stack.cols : 0;
  float sums[count] = {};
#pragma unroll 4
  for (int64_t k = threadIdx.x % kWarp * kLaneColumns; k < cols; k += kWarpColumns) {
    float w[kLaneColumns], x[kLaneColumns];
    load_8<dtype, vectors>(weights, k, a.stack.cols, w);
#pragma unroll
    for (int r = 0; r < count; ++r) {
      load_8<CHORAL_F32, vectors>(reinterpret_cast<const unsigned char*>(a.x[first + r]), k, a.stack.cols, x);
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) sums[r] = fmaf(x[i], w[i], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < count; ++r) {
    const float sum = warp_sum(sums[r]);
    if (threadIdx.x % kWarp == 0) a.y[first + r][j] = a.scaling * sum;
  }
}

template <int dtype, bool vectors, int kRows>
__global__ void __launch_bounds__(kShrinkThreads) shrink_kernel(Adapters a) {
  const int64_t j = int64_t{blockIdx.y} * kShrinkWarps + threadIdx.x / kWarp;
  if (j >= a.stack.rows) return;
  for_runs<kRows>(
      a, int64_t{blockIdx.x} * kRows, [&](int64_t row, int32_t slot) { shrink_rows<dtype, vectors, 1>(a, row, slot, j); },
      [&](int64_t row, int32_t slot) { shrink_rows<dtype, vectors, kRows>(a, row, slot, j); });
}

// x of the rows lies in shared memory, [rank][kRows]; `at` is the first row's place there.
template <int dtype, bool vectors, int kRows, int count>
__device__ __forceinline__ void expand_rows(const Adapters& a, const float* x, int at, int64_t first, int32_t slot, int64_t o) {
  const unsigned char* weights = a.stack.data + (slot * a.stack.rows + o) * a.stack.cols * kElementBytes<dtype>;
  const int64_t rank = a.rank(slot);
  float sums[count] = {};
  for (int64_t k = 0; k < rank; k += kLaneColumns) {
    float w[kLaneColumns];
    load_8<dtype, vectors>(weights, k, a.stack.cols, w);
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      if (k + i >= rank) break;
#pragma unroll
      for (int r = 0; r < count; ++r) sums[r] = fmaf(x[(k + i) * kRows + at + r], w[i], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < count; ++r) {
    float& y = a.y[first + r][a.slice_begin + o];
    const float sum = sums[r] + 0.0f;
    y = a.add ? y + sum : sum;
  }
}

template <int dtype, bool vectors, int kRows>
__global__ void __launch_bounds__(kExpandThreads) expand_kernel(Adapters a) {
  float* x = shared_memory<float>();
  const int64_t first_row = int64_t{blockIdx.x} * kRows, o = int64_t{blockIdx.y} * kExpandThreads + threadIdx.x;
  for (int64_t i = threadIdx.x; i < a.stack.cols * kRows; i += kExpandThreads) {
    const int64_t row = first_row + i % kRows;
    x[i] = row < a.y_rows ? a.x[row][i / kRows] : 0.0f;
  }
  __syncthreads();
  for_runs<kRows>(
      a, first_row,
      [&](int64_t row, int32_t slot) {
        if (o < a.stack.rows) expand_rows<dtype, vectors, kRows, 1>(a, x, static_cast<int>(row - first_row), row, slot, o);
      },
      [&](int64_t row, int32_t slot) {
        if (o < a.stack.rows) expand_rows<dtype, vectors, kRows, kRows>(a, x, 0, row, slot, o);
      });
}

__global__ void __launch_bounds__(kExpandThreads) scale_kernel(Adapters a) {
  const int32_t slot = a.slot(blockIdx.x);
  const int64_t c = int64_t{blockIdx.y} * kExpandThreads + threadIdx.x;
  if (slot >= 0 && c < a.stack.cols) a.y[blockIdx.x][c] *= reinterpret_cast<const float*>(a.stack.data)[slot * a.stack.cols + c];
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

enum class Direction { kShrink, kExpand };

template <Direction direction, int dtype, bool vectors, int kRows>
cudaError_t launch_form(const Launch& launch, const Adapters& a) {
  const auto row_tiles = static_cast<unsigned>(ceil_div<int64_t>(a.y_rows, kRows));
  const auto columns =
      static_cast<unsigned>(ceil_div<int64_t>(a.stack.rows, direction == Direction::kShrink ? kShrinkWarps : kExpandThreads));
  if (direction == Direction::kShrink) {
    return launch_kernel(shrink_kernel<dtype, vectors, kRows>, {dim3(row_tiles, columns), dim3(kShrinkThreads)}, launch.stream,
                         a);
  }
  const size_t shared_bytes = a.stack.cols * kRows * sizeof(float);
  return launch_kernel(expand_kernel<dtype, vectors, kRows>, {dim3(row_tiles, columns), dim3(kExpandThreads), shared_bytes},
                       launch.stream, a);
}

// Four rows at a time where that leaves the device busy; the bits are the same.
template <Direction direction, int dtype>
cudaError_t launch_typed(const Launch& launch, const choral_lora_args& args, const Adapters& a) {
  const bool x_aligned = direction == Direction::kExpand || (aligned(args.x.data) && args.x.stride % 4 == 0);
  const bool vectors = a.stack.cols % kLaneColumns == 0 && aligned(a.stack.data) && x_aligned;
  const int64_t blocks =
      a.y_rows / 4 * ceil_div<int64_t>(a.stack.rows, direction == Direction::kShrink ? kShrinkWarps : kExpandThreads);
  const bool many = blocks >= 2 * int64_t{launch.sm_count};
  if (vectors)
    return many ? launch_form<direction, dtype, true, 4>(launch, a) : launch_form<direction, dtype, true, 1>(launch, a);
  return many ? launch_form<direction, dtype, false, 4>(launch, a) : launch_form<direction, dtype, false, 1>(launch, a);
}

template <Direction direction>
cudaError_t launch_lora(const Launch& launch, const choral_lora_args& args, bool by_sequence) {
  const Adapters a(launch, args, by_sequence, direction == Direction::kShrink ? args.stack.rows : args.stack.cols);
  if (a.y_rows == 0 || a.stack.rows == 0 || a.stack.slots == 0) return cudaSuccess;
  switch (args.stack.dtype) {
    case CHORAL_F32: return launch_typed<direction, CHORAL_F32>(launch, args, a);
    case CHORAL_F16: return launch_typed<direction, CHORAL_F16>(launch, args, a);
    case CHORAL_BF16: return launch_typed<direction, CHORAL_BF16>(launch, args, a);
    default: return cudaErrorNotSupported;
  }
}

}  // namespace

cudaError_t bgmv_shrink(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kShrink>(launch, a, false);
}
cudaError_t bgmv_expand(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kExpand>(launch, a, false);
}
cudaError_t bgmv_expand_slice(const Launch& launch, const choral_lora_args& a) { return bgmv_expand(launch, a); }
cudaError_t sgmv_shrink(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kShrink>(launch, a, true);
}
cudaError_t sgmv_expand(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kExpand>(launch, a, true);
}
cudaError_t sgmv_expand_slice(const Launch& launch, const choral_lora_args& a) { return sgmv_expand(launch, a); }

cudaError_t bgmv_scale(const Launch& launch, const choral_lora_args& args) {
  const Adapters a(launch, args, false, 0);
  if (a.y_rows == 0 || a.stack.cols == 0 || a.stack.slots == 0) return cudaSuccess;
  const dim3 blocks(static_cast<unsigned>(a.y_rows), static_cast<unsigned>(ceil_div<int64_t>(a.stack.cols, kExpandThreads)));
  return launch_kernel(scale_kernel, {blocks, dim3(kExpandThreads)}, launch.stream, a);
}

}  // namespace choral_cuda
