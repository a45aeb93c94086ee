// What the kernels on adapters' stacks share: all adapters of a call are one launch, and so are the slices of lora_shrink and
// lora_expand: the grid's columns are those of one slice behind the other's. The operators of one projection are launches of one
// slice.
#pragma once

#include <algorithm>
#include <span>

#include "ptx.h"
#include "rows.h"

namespace choral_cuda {

inline constexpr int kLaneColumns = 8;  // of a row, that a lane loads at once

struct Stack {
  const unsigned char* data;
  int64_t slots, rows, cols;
};

enum class Direction { kShrink, kExpand, kScale };

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

  // columns_of_block: how many of the stack's rows (of a scale's columns) a block has.
  void append(const choral_lora_args& a, Direction direction, int64_t columns_of_block) {
    const bool shrink = direction == Direction::kShrink, has_rank = direction != Direction::kScale;
    const int64_t columns = has_rank ? a.stack.rows : a.stack.cols;
    slices[slice_count++] = {
        .middle = Rows(shrink ? a.y : a.x),
        .stack = {static_cast<const unsigned char*>(a.stack.data), a.stack.slots, a.stack.rows, a.stack.cols},
        .y_begin = a.slice_begin,
        .ranks = has_rank ? a.ranks : nullptr,
        .most_rank = shrink ? a.stack.rows : a.stack.cols,
        .first_block = block_count};
    block_count += static_cast<unsigned>(ceil_div(columns, columns_of_block));
  }

  void append(std::span<const choral_lora_args> all, Direction direction, int64_t columns_of_block) {
    for (const choral_lora_args& slice : all) {
      if (slice.stack.rows > 0 && slice.stack.slots > 0) append(slice, direction, columns_of_block);
    }
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

// A lane's `count` elements beside each other of a row, as pairs of bf16 in two planes; a bf16's second plane is nothing.
template <int dtype, int count>
struct LanePairs {
  static constexpr int kWords = dtype == CHORAL_F32 ? count : count / 2;
  uint32_t words[kWords];

  // From element k on; those from `end` on are 0. vectors: rows are whole vectors.
  template <bool vectors>
  __device__ __forceinline__ void load(const unsigned char* row, int64_t k, int64_t end) {
    if constexpr (vectors) {
      if (k + count <= end) {
        load_words(row + k * kElementBytes<dtype>);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (dtype == CHORAL_F32) {
        words[i] = k + i < end ? reinterpret_cast<const uint32_t*>(row)[k + i] : 0;
      } else {
        const auto half = [&](int64_t at) { return at < end ? uint32_t{reinterpret_cast<const uint16_t*>(row)[at]} : 0u; };
        words[i] = half(k + 2 * i) | half(k + 2 * i + 1) << 16;
      }
    }
  }

  __device__ __forceinline__ void split(int pair, uint32_t* high, uint32_t* low) const {
    if constexpr (dtype == CHORAL_BF16) {
      *high = words[pair], *low = 0;
    } else if constexpr (dtype == CHORAL_F16) {
      split(low_f16(words[pair]), high_f16(words[pair]), high, low);
    } else {
      split(__uint_as_float(words[2 * pair]), __uint_as_float(words[2 * pair + 1]), high, low);
    }
  }

 private:
  static __device__ __forceinline__ void split(float a, float b, uint32_t* high, uint32_t* low) {
    *high = pack_bf16(a, b);
    *low = pack_bf16(a - low_bf16(*high), b - high_bf16(*high));
  }
  __device__ __forceinline__ void load_words(const unsigned char* from) {
    if constexpr (kWords == 2) {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      words[0] = v.x, words[1] = v.y;
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        const uint4 v = reinterpret_cast<const uint4*>(from)[i / 4];
        words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
      }
    }
  }
};

// Slots of a block's rows into shared memory, by all of its threads. Copies write slots, ranks and stacks, kernels never do; a
// copy ends before a later kernel begins. So they may be read before earlier kernels are waited for.
template <int kRows>
__device__ __forceinline__ void slots_of(const Adapters& a, const Slice& s, int64_t first_row, int32_t* slots) {
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  for (int row = warp; row < kRows; row += warps) {
    const int32_t slot = a.slot(s, first_row + row);
    if (threadIdx.x % kWarp == 0) slots[row] = slot;
  }
  __syncthreads();
}

// Whether row r has a slot, and is the first of these rows that has it.
__device__ __forceinline__ bool is_first_of_slot(const int32_t* slots, int r) {
  bool is_first = slots[r] >= 0;
  for (int before = 0; before < r; ++before) is_first = is_first && slots[before] != slots[r];
  return is_first;
}

// At most `rows` rows of a slot's matrix, from row `first` on while it has them, and at most `cols` columns of each from column
// `begin` on: a warp asks L2 for them.
template <int dtype>
__device__ __forceinline__ void fetch(const Slice& s, int32_t slot, int64_t slot_rows, int64_t first, int64_t rows, int64_t begin,
                                      int64_t cols) {
  constexpr int kLine = 128;
  const int64_t rows_left = slot_rows - first, cols_left = s.stack.cols - begin;
  if (rows_left <= 0 || cols_left <= 0) return;
  const int64_t lines = ceil_div<int64_t>((cols_left < cols ? cols_left : cols) * kElementBytes<dtype>, kLine);
  const int64_t all = (rows_left < rows ? rows_left : rows) * lines;
  for (int64_t i = threadIdx.x % kWarp; i < all; i += kWarp) {
    const int64_t at = (slot * s.stack.rows + first + i / lines) * s.stack.cols + begin;
    fetch_line(s.stack.data + at * kElementBytes<dtype> + i % lines * kLine);
  }
}

template <class Body>
cudaError_t for_dtype(int32_t dtype, Body body) {
  switch (dtype) {
    case CHORAL_F32: return body.template operator()<CHORAL_F32>();
    case CHORAL_F16: return body.template operator()<CHORAL_F16>();
    case CHORAL_BF16: return body.template operator()<CHORAL_BF16>();
    default: return cudaErrorNotSupported;
  }
}

inline bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }
// Whether kernels may load kLaneColumns at once.
inline bool takes_vectors(const Slice& s) { return s.stack.cols % kLaneColumns == 0 && is_aligned(s.stack.data); }
inline bool takes_vectors(const Adapters& a) {
  return std::all_of(a.slices, a.slices + a.slice_count, [](const Slice& s) { return takes_vectors(s); });
}

// Of slices that share x (of expands: y) and all that is Adapters' own.
cudaError_t shrink(const Launch& launch, std::span<const choral_lora_args> slices, bool by_sequence);
cudaError_t expand(const Launch& launch, std::span<const choral_lora_args> slices, bool by_sequence);

}  // namespace choral_cuda
