// Attention over the paged cache: scores are K·Q of mma with tokens as rows and eight (row of x, head) pairs as columns, weighted
// values Vᵀ·P, with the same columns. Keys and values come from the cache in fragments, straight into registers; q and the
// weights are two planes each, so that they count with 16 bits or more.
//
// One column's order of sums, whatever its tile has beside it: blocks of 32 positions in order with an online softmax, anew for
// each range of 256 positions; ranges are merged in order. A block of which a column sees nothing leaves it as it was.
#include <cmath>

#include "attention_items.h"

namespace choral_cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;

template <bool f16>
__device__ __forceinline__ void multiply(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  const uint32_t rows[4] = {a.x, a.y, a.z, a.w}, columns[2] = {b0, b1};
  if (f16) {
    mma_f16(c, rows, columns);
  } else {
    mma_bf16(c, rows, columns);
  }
}

template <bool f16>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  return f16 ? pack_f16(low, high) : pack_bf16(low, high);
}

// What pack lost.
template <bool f16>
__device__ __forceinline__ uint32_t pack_rest(float low, float high, uint32_t packed) {
  return f16 ? pack_f16(low - low_f16(packed), high - high_f16(packed))
             : pack_bf16(low - low_bf16(packed), high - high_bf16(packed));
}

// One warp's columns. Of C a lane has columns 2t and 2t + 1, of B column g.
template <bool f16, int planes, bool values_in_keys>
class ColumnTile {
 public:
  __device__ __forceinline__ ColumnTile(const Attention& a, const Item& item, int64_t kv_head, int chunk, int slice,
                                        uint4* q_shared)
      : a_(a),
        sequence_(item.share.sequence),
        kv_head_(kv_head),
        chunk_(chunk),
        slice_(slice),
        lane_(threadIdx.x % kWarp),
        tile_(item.share.sequence.query_count > a.tile_rows ? item.index : 0),
        q_(q_shared),
        v_tiles_(a.cache.v_head_dim / 16 - slice * kSliceTiles) {
    for (int i = 0; i < 2; ++i) {
      const int column = lane_ % 4 * 2 + i;
      position_[i] = has(column) ? sequence_.context_tokens + row_in_sequence(column) : -1;
      first_[i] = has(column) ? a.first_visible(position_[i]) : 0;
    }
    load_q();
  }

  __device__ __forceinline__ bool has(int column) const {
    return head_in_group(column) < a_.group && row_in_sequence(column) < sequence_.query_count && column < columns();
  }
  __device__ __forceinline__ int64_t row(int column) const { return sequence_.query_begin + row_in_sequence(column); }
  __device__ __forceinline__ int64_t head(int column) const { return kv_head_ * a_.group + head_in_group(column); }
  __device__ __forceinline__ int64_t last_position() const {
    const int last = (tile_ + 1) * a_.tile_rows;
    return sequence_.context_tokens + (last < sequence_.query_count ? last : sequence_.query_count) - 1;
  }
  __device__ __forceinline__ int64_t first_visible() const {
    return a_.first_visible(sequence_.context_tokens + int64_t{tile_} * a_.tile_rows);
  }

  // The softmax and weighted values of range `range` alone. False: the table names a block that is not there.
  __device__ __forceinline__ bool attend(int64_t range) {
#pragma unroll
    for (int i = 0; i < 2; ++i) softmax[i] = {-INFINITY, 0.0f};
#pragma unroll
    for (auto& tile : values) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    int64_t begin = range * kRangeBlocks, end = begin + kRangeBlocks;
    if (first_visible() / kCacheBlockTokens > begin) begin = first_visible() / kCacheBlockTokens;
    if (last_position() / kCacheBlockTokens + 1 < end) end = last_position() / kCacheBlockTokens + 1;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t id = a_.block_ids[sequence_.first_block + block];
      if (id < 0 || id >= a_.cache.blocks) {
        if (lane_ == 0) report(a_.fault, kBlockBeyond);
        return false;
      }
      float scores[2][4] = {};
      score(id, scores);
      weigh(block * kCacheBlockTokens, scores);
      add_values(id, block * kCacheBlockTokens, scores);
    }
    return true;
  }

  Softmax softmax[2];
  float values[kSliceTiles][4];

 private:
  __device__ __forceinline__ int columns() const { return a_.group < kColumns ? a_.tile_rows * a_.group : kColumns; }
  __device__ __forceinline__ int row_in_sequence(int column) const {
    return tile_ * a_.tile_rows + (a_.group < kColumns ? column / a_.group : 0);
  }
  __device__ __forceinline__ int head_in_group(int column) const {
    return a_.group < kColumns ? column % a_.group : chunk_ * kColumns + column;
  }

  // Into shared memory as B fragments of both planes, each lane its own; for f16 times a power of two, so that any size fits.
  __device__ __forceinline__ void load_q() {
    const int g = lane_ / 4, t = lane_ % 4, steps = ceil_div(a_.cache.head_dim, 16);
    const float* q = has(g) ? a_.q[row(g)] + head(g) * a_.cache.head_dim : nullptr;
    const auto element = [&](int step, int i) {
      const int at = step * 16 + 2 * t + i / 2 * 8 + i % 2;
      return q == nullptr || at >= a_.cache.head_dim ? 0.0f : q[at];
    };
    float power = 1.0f, inverse = 1.0f;
    if (f16) {
      uint32_t largest = 0;
      for (int i = 0; i < 4 * steps; ++i) {
        const uint32_t bits = __float_as_uint(element(i / 4, i % 4)) & 0x7f800000u;
        largest = bits > largest ? bits : largest;
      }
      for (int step = 1; step < 4; step *= 2) {
        const uint32_t other = __shfl_xor_sync(kAllLanes, largest, step);
        largest = other > largest ? other : largest;
      }
      const int exponent = static_cast<int>(largest >> 23);
      if (exponent > 20 && exponent < 240) {  // to between 2^8 and 2^9
        power = __uint_as_float(static_cast<uint32_t>(262 - exponent) << 23);
        inverse = __uint_as_float(static_cast<uint32_t>(exponent - 8) << 23);
      }
    }
    for (int i = 0; i < 2; ++i) score_scale_[i] = __shfl_sync(kAllLanes, inverse, lane_ % 4 * 8 + i * 4) * a_.scale;
    for (int step = 0; step < steps; ++step) {
      float v[4];
      for (int i = 0; i < 4; ++i) v[i] = element(step, i) * power;
      uint4 out;
      out.x = pack<f16>(v[0], v[1]);
      out.y = pack<f16>(v[2], v[3]);
      out.z = pack_rest<f16>(v[0], v[1], out.x);
      out.w = pack_rest<f16>(v[2], v[3], out.y);
      q_[step * kWarp + lane_] = out;
    }
  }

  __device__ __forceinline__ static uint4 fragment(const uint16_t* block, int index, int plane, int lane) {
    return *reinterpret_cast<const uint4*>(block + (index * planes + plane) * kFragment + lane * 8);
  }

  // last_half: of a step that has eight columns.
  template <bool last_half>
  __device__ __forceinline__ uint4 key_fragment(const uint16_t* keys, int step, int half, int plane) const {
    if (!last_half) return fragment(keys, step * 2 + half, plane, lane_);
    const uint16_t* from = keys + step * 2 * planes * kFragment + (half * planes + plane) * kHalfFragment;
    const uint2 v = *reinterpret_cast<const uint2*>(from + lane_ * 4);
    return make_uint4(v.x, v.y, 0, 0);
  }

  template <bool last_half>
  __device__ __forceinline__ void score_step(const uint16_t* keys, int step, float (&scores)[2][4]) const {
    const uint4 q = q_[step * kWarp + lane_];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 high = key_fragment<last_half>(keys, step, half, 0);
      multiply<f16>(scores[half], high, q.x, q.y);
      multiply<f16>(scores[half], high, q.z, q.w);
      if (planes == 2) multiply<f16>(scores[half], key_fragment<last_half>(keys, step, half, 1), q.x, q.y);
    }
  }

  __device__ __forceinline__ void score(int64_t id, float (&scores)[2][4]) const {
    const uint16_t* keys = a_.cache.key_block(id, kv_head_);
    const int steps = a_.cache.head_dim / 16;
#pragma unroll 4
    for (int step = 0; step < steps; ++step) score_step<false>(keys, step, scores);
    if (a_.cache.head_dim % 16 != 0) score_step<true>(keys, steps, scores);
  }

  // Scores of 32 positions become weights; what was summed before is measured by the new largest score.
  __device__ __forceinline__ void weigh(int64_t first_position, float (&scores)[2][4]) {
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& s = scores[i / 4][i % 4];
      const int column = i % 2;
      const int64_t position = first_position + i / 4 * 16 + i % 4 / 2 * 8 + lane_ / 4;
      s *= score_scale_[column];
      if (a_.softcap > 0.0f) s = a_.softcap * tanhf(s / a_.softcap);
      if (position > position_[column] || position < first_[column]) s = -INFINITY;
      most[column] = fmaxf(most[column], s);
    }
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      for (int step = 4; step < kWarp; step *= 2)
        most[column] = fmaxf(most[column], __shfl_xor_sync(kAllLanes, most[column], step));
      Softmax& so_far = softmax[column];
      const float now = fmaxf(so_far.most, most[column]), base = now == -INFINITY ? 0.0f : now;
      const float shrink = expf(so_far.most - base);
      float sum = 0.0f;
#pragma unroll
      for (int i = column; i < 8; i += 2) {
        float& s = scores[i / 4][i % 4];
        s = expf(s - base);
        sum += s;
      }
      for (int step = 4; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      so_far.most = now;
      so_far.sum = fmaf(so_far.sum, shrink, sum);
#pragma unroll
      for (auto& tile : values) {
        tile[column] *= shrink;
        tile[column + 2] *= shrink;
      }
    }
  }

  __device__ __forceinline__ uint4 value_fragment(int64_t id, int tile, int half, int plane) const {
    const int of_head = slice_ * kSliceTiles + tile;
    if (!values_in_keys) return fragment(a_.cache.value_block(id, kv_head_), of_head * 2 + half, plane, lane_);
    const uint16_t* keys = a_.cache.key_block(id, kv_head_);
    const uint4 key = of_head < a_.cache.head_dim / 16 ? key_fragment<false>(keys, of_head, half, plane)
                                                       : key_fragment<true>(keys, of_head, half, plane);
    return make_uint4(transpose_8x8(key.x), transpose_8x8(key.z), transpose_8x8(key.y), transpose_8x8(key.w));
  }

  __device__ __forceinline__ void add_values(int64_t id, int64_t first_position, const float (&weights)[2][4]) {
    uint32_t high[2][2], low[2][2];  // B fragments of 16 positions each
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float a = weights[half][2 * i], b = weights[half][2 * i + 1];
        const uint32_t packed = pack<f16>(a, b);
        high[half][i] = transpose_8x8(packed);
        low[half][i] = transpose_8x8(pack_rest<f16>(a, b, packed));
      }
    }
    // What lies in a block behind the sequence's last token is anybody's, and may be no number: it becomes 0.
    const int64_t left = int64_t{sequence_.context_tokens} + sequence_.query_count - first_position;
    uint32_t keep[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = i / 2 * 16 + i % 2 * 8 + lane_ % 4 * 2;
      keep[i / 2][i % 2] = (token < left ? 0xffffu : 0) | (token + 1 < left ? 0xffff0000u : 0);
    }
#pragma unroll
    for (int tile = 0; tile < kSliceTiles; ++tile) {
      if (tile >= v_tiles_) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int plane = 0; plane < planes; ++plane) {
          uint4 v = value_fragment(id, tile, half, plane);
          v.x &= keep[half][0], v.y &= keep[half][0], v.z &= keep[half][1], v.w &= keep[half][1];
          multiply<f16>(values[tile], v, high[half][0], high[half][1]);
          if (plane == 0) multiply<f16>(values[tile], v, low[half][0], low[half][1]);
        }
      }
    }
  }

  const Attention& a_;
  const choral_sequence sequence_;
  const int64_t kv_head_;
  const int chunk_, slice_, lane_, tile_;
  uint4* q_;
  const int v_tiles_;
  int64_t position_[2], first_[2];  // of the lane's columns of C: what they are, and see from
  float score_scale_[2];
};

// Each of the lane's results, which are of column `column` and element `at` of the slice.
template <class Body>
__device__ __forceinline__ void for_values(int v_left, Body body) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int tile = 0; tile < kSliceTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = tile * 16 + lane / 4 + i / 2 * 8;
      if (at < v_left) body(tile, i, lane % 4 * 2 + i % 2, at);
    }
  }
}

template <bool f16, int planes, bool values_in_keys>
__global__ void __launch_bounds__(kThreads) attention_kernel(Attention a) {
  const int slice = static_cast<int>(blockIdx.y) % a.slices, chunk = static_cast<int>(blockIdx.y) / a.slices % a.head_chunks;
  const int64_t kv_head = blockIdx.y / (a.slices * a.head_chunks);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int v_left = a.v_head_dim - slice * kSlice;
  uint4* q_shared = shared_memory<uint4>() + warp * ceil_div(a.cache.head_dim, 16) * kWarp;
  ItemWalk walk;
  Item item;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + warp; walk.find(a, i, &item); i += int64_t{gridDim.x} * kWarps) {
    ColumnTile<f16, planes, values_in_keys> tile(a, item, kv_head, chunk, slice, q_shared);
    if (item.share.splits > 0) {
      if (item.split >= a.part_capacity) {
        if (lane == 0) report(a.fault, kBlockBeyond);
        continue;
      }
      if (!tile.attend(item.share.first_range + item.index)) continue;
      float* parts = a.parts + (item.split * gridDim.y + blockIdx.y) * kColumns * kPartFloats;
      for (int column = 0; column < 2 && lane / 4 == 0; ++column) {
        float* part = parts + (lane % 4 * 2 + column) * kPartFloats;
        part[0] = tile.softmax[column].most, part[1] = tile.softmax[column].sum;
      }
      for_values(v_left, [&](int m, int i4, int column, int at) { parts[column * kPartFloats + 2 + at] = tile.values[m][i4]; });
      continue;
    }
    Softmax total[2];
    float sums[kSliceTiles][4] = {};
    for (int column = 0; column < 2; ++column) {
      const int mine = lane % 4 * 2 + column;
      total[column] = tile.has(mine) ? sink_or_nothing(a.sinks, tile.head(mine)) : Softmax{-INFINITY, 0.0f};
    }
    bool whole = true;
    for (int64_t range = tile.first_visible() / kRangeTokens; whole && range <= tile.last_position() / kRangeTokens; ++range) {
      whole = tile.attend(range);
      const Factors factors[2] = {merge(&total[0], tile.softmax[0]), merge(&total[1], tile.softmax[1])};
#pragma unroll
      for (int m = 0; m < kSliceTiles; ++m) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[m][k] = merge_value(sums[m][k], tile.values[m][k], factors[k % 2]);
      }
    }
    if (!whole) continue;
    for_values(v_left, [&](int m, int i4, int column, int at) {
      if (!tile.has(column)) return;
      a.out[tile.row(column)][tile.head(column) * a.v_head_dim + slice * kSlice + at] = sums[m][i4] / total[i4 % 2].sum;
    });
  }
}

// The ranges of sequences of one tile, in order. A thread has an element of the slice.
__global__ void __launch_bounds__(kSlice) combine_kernel(Attention a) {
  const int64_t index = blockIdx.x;
  int32_t splits = 0;  // of the sequences before
  for (int64_t i = threadIdx.x % kWarp; i < index; i += kWarp) splits += Share::of(a, i).splits;
  for (int step = kWarp / 2; step > 0; step /= 2) splits += __shfl_xor_sync(kAllLanes, splits, step);
  const Share share = Share::of(a, index);
  if (splits + share.splits > a.part_capacity) return;
  const int slice = static_cast<int>(blockIdx.y) % a.slices, chunk = static_cast<int>(blockIdx.y) / a.slices % a.head_chunks;
  const int64_t kv_head = blockIdx.y / (a.slices * a.head_chunks);
  const int at = static_cast<int>(threadIdx.x), v_left = a.v_head_dim - slice * kSlice;
  if (share.splits == 0 || at >= v_left) return;
  for (int column = 0; column < kColumns; ++column) {
    const int row = a.group < kColumns ? column / a.group : 0;
    const int head_in_group = a.group < kColumns ? column % a.group : chunk * kColumns + column;
    if (row >= share.sequence.query_count || row >= a.tile_rows || head_in_group >= a.group) continue;
    const int64_t head = kv_head * a.group + head_in_group;
    Softmax total = sink_or_nothing(a.sinks, head);
    float sum = 0.0f;
    for (int range = 0; range < share.splits; ++range) {
      const float* part =
          a.parts + ((int64_t{splits} + range) * gridDim.y + blockIdx.y) * kColumns * kPartFloats + column * kPartFloats;
      sum = merge_value(sum, part[2 + at], merge(&total, {part[0], part[1]}));
    }
    a.out[share.sequence.query_begin + row][head * a.v_head_dim + slice * kSlice + at] = sum / total.sum;
  }
}

using AttentionKernel = void(Attention);

AttentionKernel* kernel_for(const choral_kv_cache& cache) {
  const bool in_keys = cache.values == nullptr;
  if (cache.dtype == CHORAL_F16) return in_keys ? attention_kernel<true, 1, true> : attention_kernel<true, 1, false>;
  if (cache.dtype == CHORAL_BF16) return in_keys ? attention_kernel<false, 1, true> : attention_kernel<false, 1, false>;
  return in_keys ? attention_kernel<false, 2, true> : attention_kernel<false, 2, false>;
}

}  // namespace

size_t paged_attention_scratch_bytes(const choral_attention_args& args) {
  const Attention a(Launch{}, args);
  return static_cast<size_t>(a.part_capacity * a.grid_y()) * kColumns * kPartFloats * sizeof(float);
}

cudaError_t paged_attention(const Launch& launch, const choral_attention_args& args) {
  if (args.q.rows == 0 || args.sequence_count == 0) return cudaSuccess;
  const Attention a(launch, args);
  const int64_t blocks = ceil_div<int64_t>(a.most_items(), kWarps), most = int64_t{1} << 16;
  const auto y = static_cast<unsigned>(a.grid_y());
  const GridShape shape{dim3(static_cast<unsigned>(blocks < most ? blocks : most), y), dim3(kThreads),
                        kWarps * static_cast<size_t>(ceil_div<int64_t>(args.cache.head_dim, 16)) * kWarp * sizeof(uint4)};
  const cudaError_t error = launch_kernel(kernel_for(args.cache), shape, launch.stream, a);
  if (error != cudaSuccess) return error;
  return launch_kernel(combine_kernel, {dim3(static_cast<unsigned>(args.sequence_count), y), dim3(kSlice)}, launch.stream, a);
}

}  // namespace choral_cuda
