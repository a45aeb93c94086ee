// Adapters on stacks: the shrink y = scaling·x·Aᵀ, the expand y (+)= x·Bᵀ, the factor. All adapters of a call are one launch, and
// so are the slices of lora_shrink and lora_expand: the grid's columns are those of one slice behind the other's. The operators
// of one projection are launches of one slice.
//
// A row's sums have one order, however its slot was named and whoever is beside it. Shrink: a warp has an element of y; each lane
// sums eight columns of every 256 in order, then the lanes are added (reduce.h). Expand: a thread has an element of y and sums
// the rank in order. Rows that follow each other in one slot share what is read of A and B (kRows of them); the sums stay their
// own. What lies beyond a slot's rank is not read. It would add zeros, which change no sum but −0: so an expand's becomes +0.
#include <algorithm>
#include <span>

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

enum class Direction { kShrink, kExpand, kScale };

constexpr int64_t columns_of_block(Direction direction) {
  return direction == Direction::kShrink ? kShrinkWarps : kExpandThreads;
}

// One stack of a launch.
struct Slice {
  Rows middle;  // y of a shrink, x of an expand
  Stack stack;
  int64_t y_begin;
  const int32_t* ranks;  // null: those of the stack
  int64_t most_rank;
  unsigned first_block;  // of the grid's columns

  // Of a slot that Adapters::slot() gave.
  __device__ __forceinline__ int64_t rank(int32_t slot) const { return ranks == nullptr ? most_rank : ranks[slot]; }
};

struct Adapters {
  Rows whole;  // what slices have in common: x of a shrink, y of an expand and of a scale
  int64_t rows;
  const int32_t* slot_of;
  const int32_t* starts;  // null: slot_of is of rows
  const int32_t* lengths;
  int64_t sequence_count;
  float scaling;
  bool add;
  int32_t* fault;
  int slice_count;
  unsigned block_count;  // of the grid's columns
  Slice slices[CHORAL_LORA_SLICES];

  // Without slices; `a` is one of them.
  Adapters(const Launch& launch, const choral_lora_args& a, Direction direction, bool by_sequence)
      : whole(direction == Direction::kShrink ? a.x : a.y),
        rows(a.y.rows),
        slot_of(a.slot_of),
        starts(by_sequence ? a.starts : nullptr),
        lengths(a.lengths),
        sequence_count(a.sequence_count),
        scaling(a.scaling),
        add(a.add != 0),
        fault(launch.fault),
        slice_count(0),
        block_count(0) {}

  void append(const choral_lora_args& a, Direction direction) {
    const bool shrink = direction == Direction::kShrink, has_rank = direction != Direction::kScale;
    const int64_t columns = has_rank ? a.stack.rows : a.stack.cols;
    slices[slice_count++] = {
        .middle = Rows(shrink ? a.y : a.x),
        .stack = {static_cast<const unsigned char*>(a.stack.data), a.stack.slots, a.stack.rows, a.stack.cols},
        .y_begin = a.slice_begin,
        .ranks = has_rank ? a.ranks : nullptr,
        .most_rank = shrink ? a.stack.rows : a.stack.cols,
        .first_block = block_count};
    block_count += static_cast<unsigned>(ceil_div(columns, columns_of_block(direction)));
  }

  // The slice that a column of blocks is in.
  __device__ __forceinline__ const Slice& slice_of(unsigned block) const {
    int found = 0;
#pragma unroll
    for (int i = 1; i < CHORAL_LORA_SLICES; ++i) {
      if (i < slice_count && slices[i].first_block <= block) found = i;
    }
    return slices[found];
  }

  // The slot of a row, -1: none. All lanes of a warp ask together.
  __device__ __forceinline__ int32_t slot(const Slice& s, int64_t row) const {
    int32_t slot = -1;
    if (starts == nullptr) {
      slot = row < rows ? slot_of[row] : -1;
    } else {
      for (int64_t i = threadIdx.x % kWarp; i < sequence_count; i += kWarp) {
        const int64_t start = starts[i], length = lengths[i];
        if (start < 0 || length < 0 || start + length > rows) {
          report(fault, kAdapterBeyond);
        } else if (row >= start && row < start + length) {
          slot = slot_of[i] < -1 ? static_cast<int32_t>(s.stack.slots) : slot_of[i];
        }
      }
      for (int step = kWarp / 2; step > 0; step /= 2) {
        const int32_t other = __shfl_xor_sync(kAllLanes, slot, step);
        slot = other > slot ? other : slot;
      }
    }
    const bool there = slot >= -1 && slot < s.stack.slots;
    if (!there || (slot >= 0 && (s.rank(slot) < 0 || s.rank(slot) > s.most_rank))) {
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
__device__ __forceinline__ void for_runs(const Adapters& a, const Slice& s, int64_t first, One one, All all) {
  int32_t slots[kRows];
  bool same = true;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    slots[i] = a.slot(s, first + i);
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
__device__ __forceinline__ void shrink_rows(const Adapters& a, const Slice& s, int64_t first, int32_t slot, int64_t j) {
  const unsigned char* weights = s.stack.data + (slot * s.stack.rows + j) * s.stack.cols * kElementBytes<dtype>;
  const int64_t cols = j < s.rank(slot) ? s.stack.cols : 0;
  float sums[count] = {};
  constexpr int kAtOnce = count == 1 ? 4 : 2;  // loads under way before the first is used
  for (int64_t begin = threadIdx.x % kWarp * kLaneColumns; begin < cols; begin += kAtOnce * kWarpColumns) {
    float w[kAtOnce][kLaneColumns], x[kAtOnce][count][kLaneColumns];
#pragma unroll
    for (int part = 0; part < kAtOnce; ++part) {
      const int64_t k = begin + part * kWarpColumns;
      if (k >= cols) break;
      load_8<dtype, vectors>(weights, k, s.stack.cols, w[part]);
#pragma unroll
      for (int r = 0; r < count; ++r) {
        load_8<CHORAL_F32, vectors>(reinterpret_cast<const unsigned char*>(a.whole[first + r]), k, s.stack.cols, x[part][r]);
      }
    }
#pragma unroll
    for (int part = 0; part < kAtOnce; ++part) {
      if (begin + part * kWarpColumns >= cols) break;
#pragma unroll
      for (int r = 0; r < count; ++r) {
#pragma unroll
        for (int i = 0; i < kLaneColumns; ++i) sums[r] = fmaf(x[part][r][i], w[part][i], sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < count; ++r) {
    const float sum = warp_sum(sums[r]);
    if (threadIdx.x % kWarp == 0) s.middle[first + r][j] = a.scaling * sum;
  }
}

template <int dtype, bool vectors, int kRows>
__global__ void __launch_bounds__(kShrinkThreads) shrink_kernel(const __grid_constant__ Adapters a) {
  wait_for_earlier_kernels();
  const Slice& s = a.slice_of(blockIdx.y);
  const int64_t j = int64_t{blockIdx.y - s.first_block} * kShrinkWarps + threadIdx.x / kWarp;
  if (j >= s.stack.rows) return;
  for_runs<kRows>(
      a, s, int64_t{blockIdx.x} * kRows, [&](int64_t row, int32_t slot) { shrink_rows<dtype, vectors, 1>(a, s, row, slot, j); },
      [&](int64_t row, int32_t slot) { shrink_rows<dtype, vectors, kRows>(a, s, row, slot, j); });
}

// x of the rows lies in shared memory, [rank][kRows]; `at` is the first row's place there.
template <int dtype, bool vectors, int kRows, int count>
__device__ __forceinline__ void expand_rows(const Adapters& a, const Slice& s, const float* x, int at, int64_t first,
                                            int32_t slot, int64_t o) {
  const unsigned char* weights = s.stack.data + (slot * s.stack.rows + o) * s.stack.cols * kElementBytes<dtype>;
  const int64_t rank = s.rank(slot);
  float sums[count] = {};
  for (int64_t k = 0; k < rank; k += kLaneColumns) {
    float w[kLaneColumns];
    load_8<dtype, vectors>(weights, k, s.stack.cols, w);
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      if (k + i >= rank) break;
#pragma unroll
      for (int r = 0; r < count; ++r) sums[r] = fmaf(x[(k + i) * kRows + at + r], w[i], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < count; ++r) {
    float& y = a.whole[first + r][s.y_begin + o];
    const float sum = sums[r] + 0.0f;
    y = a.add ? y + sum : sum;
  }
}

template <int dtype, bool vectors, int kRows>
__global__ void __launch_bounds__(kExpandThreads) expand_kernel(const __grid_constant__ Adapters a) {
  wait_for_earlier_kernels();
  float* x = shared_memory<float>();
  const Slice& s = a.slice_of(blockIdx.y);
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int64_t o = int64_t{blockIdx.y - s.first_block} * kExpandThreads + threadIdx.x;
  for (int64_t i = threadIdx.x; i < s.stack.cols * kRows; i += kExpandThreads) {
    const int64_t row = first_row + i % kRows;
    x[i] = row < a.rows ? s.middle[row][i / kRows] : 0.0f;
  }
  __syncthreads();
  for_runs<kRows>(
      a, s, first_row,
      [&](int64_t row, int32_t slot) {
        const int at = static_cast<int>(row - first_row);
        if (o < s.stack.rows) expand_rows<dtype, vectors, kRows, 1>(a, s, x, at, row, slot, o);
      },
      [&](int64_t row, int32_t slot) {
        if (o < s.stack.rows) expand_rows<dtype, vectors, kRows, kRows>(a, s, x, 0, row, slot, o);
      });
}

__global__ void __launch_bounds__(kExpandThreads) scale_kernel(const __grid_constant__ Adapters a) {
  wait_for_earlier_kernels();
  const Slice& s = a.slices[0];
  const int32_t slot = a.slot(s, blockIdx.x);
  const int64_t c = int64_t{blockIdx.y} * kExpandThreads + threadIdx.x;
  if (slot >= 0 && c < s.stack.cols)
    a.whole[blockIdx.x][c] *= reinterpret_cast<const float*>(s.stack.data)[slot * s.stack.cols + c];
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

template <Direction direction, int dtype, bool vectors, int kRows>
cudaError_t launch_form(const Launch& launch, const Adapters& a) {
  const dim3 blocks(static_cast<unsigned>(ceil_div<int64_t>(a.rows, kRows)), a.block_count);
  if (direction == Direction::kShrink) {
    return launch_kernel(shrink_kernel<dtype, vectors, kRows>, {blocks, dim3(kShrinkThreads)}, launch, a);
  }
  int64_t rank = 0;
  for (int i = 0; i < a.slice_count; ++i) rank = std::max(rank, a.slices[i].stack.cols);
  const size_t shared_bytes = rank * kRows * sizeof(float);
  return launch_kernel(expand_kernel<dtype, vectors, kRows>, {blocks, dim3(kExpandThreads), shared_bytes}, launch, a);
}

bool takes_vectors(const Slice& s) { return s.stack.cols % kLaneColumns == 0 && aligned(s.stack.data); }

// Four rows at a time where that leaves the device busy; the bits are the same.
template <Direction direction, int dtype>
cudaError_t launch_typed(const Launch& launch, const Adapters& a) {
  const bool x_aligned = direction == Direction::kExpand || (aligned(a.whole.data) && a.whole.stride % 4 == 0);
  const bool vectors = x_aligned && std::all_of(a.slices, a.slices + a.slice_count, takes_vectors);
  const bool many = a.rows / 4 * a.block_count >= 2 * int64_t{launch.sm_count};
  if (vectors)
    return many ? launch_form<direction, dtype, true, 4>(launch, a) : launch_form<direction, dtype, true, 1>(launch, a);
  return many ? launch_form<direction, dtype, false, 4>(launch, a) : launch_form<direction, dtype, false, 1>(launch, a);
}

// Slices that share rows, and all that is Adapters' own.
template <Direction direction>
cudaError_t launch_lora(const Launch& launch, std::span<const choral_lora_args> slices, bool by_sequence) {
  const choral_lora_args& first = slices.front();
  Adapters a(launch, first, direction, by_sequence);
  for (const choral_lora_args& slice : slices) {
    if (slice.stack.rows > 0 && slice.stack.slots > 0) a.append(slice, direction);
  }
  if (a.rows == 0 || a.slice_count == 0) return cudaSuccess;
  switch (first.stack.dtype) {
    case CHORAL_F32: return launch_typed<direction, CHORAL_F32>(launch, a);
    case CHORAL_F16: return launch_typed<direction, CHORAL_F16>(launch, a);
    case CHORAL_BF16: return launch_typed<direction, CHORAL_BF16>(launch, a);
    default: return cudaErrorNotSupported;
  }
}

template <Direction direction>
cudaError_t launch_slices(const Launch& launch, const choral_lora_slices_args& args) {
  choral_lora_args slices[CHORAL_LORA_SLICES];
  for (int64_t i = 0; i < args.slice_count; ++i) {
    slices[i] = (direction == Direction::kShrink ? shrink_of : expand_of)(args, args.slices[i]);
  }
  return launch_lora<direction>(launch, {slices, static_cast<size_t>(args.slice_count)}, args.starts != nullptr);
}

choral_lora_args part_of(const choral_lora_slices_args& args, const choral_lora_slice& slice) {
  choral_lora_args part{};
  part.header = CHORAL_HEADER(choral_lora_args);
  part.stack = slice.stack;
  part.slot_of = args.slot_of;
  part.starts = args.starts;
  part.lengths = args.lengths;
  part.sequence_count = args.sequence_count;
  part.max_length = args.max_length;
  part.scaling = args.scaling;
  part.add = args.add;
  part.ranks = slice.ranks;
  return part;
}

}  // namespace

choral_lora_args shrink_of(const choral_lora_slices_args& args, const choral_lora_slice& slice) {
  choral_lora_args part = part_of(args, slice);
  part.x = args.x;
  part.y = slice.middle;
  return part;
}

choral_lora_args expand_of(const choral_lora_slices_args& args, const choral_lora_slice& slice) {
  choral_lora_args part = part_of(args, slice);
  part.x = slice.middle;
  part.y = args.y;
  part.slice_begin = slice.y_begin;
  return part;
}

cudaError_t bgmv_shrink(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kShrink>(launch, {&a, 1}, false);
}
cudaError_t bgmv_expand(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kExpand>(launch, {&a, 1}, false);
}
cudaError_t bgmv_expand_slice(const Launch& launch, const choral_lora_args& a) { return bgmv_expand(launch, a); }
cudaError_t sgmv_shrink(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kShrink>(launch, {&a, 1}, true);
}
cudaError_t sgmv_expand(const Launch& launch, const choral_lora_args& a) {
  return launch_lora<Direction::kExpand>(launch, {&a, 1}, true);
}
cudaError_t sgmv_expand_slice(const Launch& launch, const choral_lora_args& a) { return sgmv_expand(launch, a); }
cudaError_t lora_shrink(const Launch& launch, const choral_lora_slices_args& args) {
  return launch_slices<Direction::kShrink>(launch, args);
}
cudaError_t lora_expand(const Launch& launch, const choral_lora_slices_args& args) {
  return launch_slices<Direction::kExpand>(launch, args);
}

cudaError_t bgmv_scale(const Launch& launch, const choral_lora_args& args) {
  if (args.y.rows == 0 || args.stack.cols == 0 || args.stack.slots == 0) return cudaSuccess;
  Adapters a(launch, args, Direction::kScale, false);
  a.append(args, Direction::kScale);
  const dim3 blocks(static_cast<unsigned>(a.rows), a.block_count);
  return launch_kernel(scale_kernel, {blocks, dim3(kExpandThreads)}, launch, a);
}

}  // namespace choral_cuda
