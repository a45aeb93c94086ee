// What attention's rows are made of: q in planes, scores, and the softmax.
#pragma once

#include "attention_items.h"
#include "wgmma.h"

namespace choral_cuda {

// Numbers of a cache of this type, in pairs, and products of them.
template <bool f16>
struct CachePairs {
  // c += A·B.
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
    multiply(c, {a.x, a.y, a.z, a.w}, b0, b1);
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&rows)[4], uint32_t b0, uint32_t b1) {
    const uint32_t columns[2] = {b0, b1};
    if (f16) {
      mma_f16(c, rows, columns);
    } else {
      mma_bf16(c, rows, columns);
    }
  }
  // The same by a warpgroup; A in registers or in shared memory.
  template <int tiles, class A>
  static __device__ __forceinline__ void start(WarpgroupSums<float, tiles>& c, const A& a, uint64_t b) {
    if constexpr (f16) {
      wgmma_f16(c, a, b);
    } else {
      wgmma_bf16(c, a, b);
    }
  }
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    return f16 ? pack_f16(low, high) : pack_bf16(low, high);
  }
  // What pack lost.
  static __device__ __forceinline__ uint32_t pack_rest(float low, float high, uint32_t packed) {
    return f16 ? pack_f16(low - low_f16(packed), high - high_f16(packed))
               : pack_bf16(low - low_bf16(packed), high - high_bf16(packed));
  }
};

// One row's q of one head, of which lanes t = 0 to 3 have elements 2t, 2t + 1, 2t + 8 and 2t + 9 of each step.
struct QueryRow {
  const float* q;  // null: zeros
  int head_dim;

  __device__ __forceinline__ float element(int step, int i) const {
    const int at = step * 16 + threadIdx.x % 4 * 2 + i / 2 * 8 + i % 2;
    return q == nullptr || at >= head_dim ? 0.0f : q[at];
  }

  // A power of two that it is multiplied by, so that f16 holds any size; and the inverse.
  struct Power {
    float power, inverse;
  };
  __device__ __forceinline__ Power power_of_f16() const {
    uint32_t largest = 0;
    for (int i = 0; i < 4 * ceil_div(head_dim, 16); ++i) {
      const uint32_t bits = __float_as_uint(element(i / 4, i % 4)) & 0x7f800000u;
      largest = bits > largest ? bits : largest;
    }
    for (int step = 1; step < 4; step *= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, largest, step);
      largest = other > largest ? other : largest;
    }
    const int exponent = static_cast<int>(largest >> 23);
    if (exponent <= 20 || exponent >= 240) return {1.0f, 1.0f};
    return {__uint_as_float(static_cast<uint32_t>(262 - exponent) << 23),  // to between 2^8 and 2^9
            __uint_as_float(static_cast<uint32_t>(exponent - 8) << 23)};
  }

  // Calls put(step, high pair, high pair 8 further, low pair, low pair 8 further).
  template <bool f16, class Put>
  __device__ __forceinline__ void for_steps(float power, Put put) const {
    using Pairs = CachePairs<f16>;
    constexpr int kAtOnce = 8;  // all loads before the first store, which the compiler can't tell from q
    const int steps = ceil_div(head_dim, 16);
    for (int first = 0; first < steps; first += kAtOnce) {
      float v[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce * 4; ++i) v[i / 4][i % 4] = element(first + i / 4, i % 4) * power;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= steps) break;
        const uint32_t high = Pairs::pack(v[i][0], v[i][1]), high_8 = Pairs::pack(v[i][2], v[i][3]);
        put(first + i, high, high_8, Pairs::pack_rest(v[i][0], v[i][1], high), Pairs::pack_rest(v[i][2], v[i][3], high_8));
      }
    }
  }
};

// Scores capped are rare, and their code is long: it stands once.
#ifdef CHORAL_CUDA_EMULATION
inline float capped(float score, float cap) { return cap * kLog2E * std::tanh(score / cap); }
#else
__device__ __noinline__ float capped(float score, float cap) { return cap * kLog2E * tanhf(score / cap); }
#endif

// Sums of products as scores, in units of log2. scale: of rows g and g + 8, Attention's and what the power of q asks for.
template <int tiles>
__device__ __forceinline__ void scale_scores(float (&scores)[tiles][4], const float (&scale)[2]) {
#pragma unroll
  for (auto& tile : scores) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] *= scale[i / 2];
  }
}
template <int tiles>
__device__ __forceinline__ void cap_scores(const Attention& a, float (&scores)[tiles][4]) {
  if (a.softcap <= 0.0f) return;
#pragma unroll
  for (auto& tile : scores) {
#pragma unroll
    for (float& score : tile) score = capped(score, a.softcap);
  }
}

// A row's softmax so far: the largest score, the sum of weights by it, and (elsewhere) the values weighted.
struct Softmax {
  float most, sum;

  // A block whose largest score is `most_of_block` comes: what was summed before is multiplied by the result, and weights are
  // powers of 2 of scores less base().
  __device__ __forceinline__ float raise(float most_of_block) {
    const float before = most;
    most = fmaxf(most, most_of_block);
    return power_of_2(before - base());
  }
  __device__ __forceinline__ float base() const { return most == -INFINITY ? 0.0f : most; }
  __device__ __forceinline__ void add(float shrink, float sum_of_block) { sum = fmaf(sum, shrink, sum_of_block); }
};

// What `so_far` and `more` are multiplied with when they become one.
struct Factors {
  float so_far, more;
};

__device__ __forceinline__ Factors merge(Softmax* so_far, const Softmax& more) {
  const float most = fmaxf(so_far->most, more.most);
  const float base = most == -INFINITY ? 0.0f : most;
  const Factors factors{power_of_2(so_far->most - base), power_of_2(more.most - base)};
  so_far->most = most;
  so_far->sum = fmaf(more.sum, factors.more, so_far->sum * factors.so_far);
  return factors;
}

__device__ __forceinline__ float merge_value(float so_far, float more, const Factors& factors) {
  return fmaf(more, factors.more, so_far * factors.so_far);
}

__device__ __forceinline__ Softmax sink_or_nothing(const float* sinks, int64_t head) {
  return sinks == nullptr ? Softmax{-INFINITY, 0.0f} : Softmax{sinks[head] * kLog2E, 1.0f};
}

}  // namespace choral_cuda
