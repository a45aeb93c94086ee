// How each format of W meets x in mma.sync. An operand names
//   kFormat      of W
//   Sum          of a product: float, or int32 for int8 rows
//   kVectors     16-byte vectors that a lane has of a row tile and 64 columns; kXVectors: of a tile of x
//   kSteps       mma steps in 64 columns
//   kScaled      whether groups of columns have scales: their sums are folded in one after another
//   fragment     A of a step, from the lane's vectors; multiply: C += A·x of that step, x the lane's vector of it
//   start        the same by a warpgroup, x at an address in shared memory as core matrices (prepared_x.h), of so many steps
// Integers and e4m3 become bf16 without loss.
#pragma once

#include "packed_weight.h"
#include "ptx.h"
#include "wgmma.h"

namespace choral_cuda {

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

inline constexpr int kStepBytes = 2 * kCoreBytes;  // of a plane and a tile of x in core matrices

using Mma = void (*)(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
// Of any number of B's tiles.
struct WgmmaBf16 {
  template <int tiles>
  static __device__ __forceinline__ void run(WarpgroupSums<float, tiles>& c, const uint32_t (&a)[4], uint64_t b) {
    wgmma_bf16(c, a, b);
  }
};
struct WgmmaF16 {
  template <int tiles>
  static __device__ __forceinline__ void run(WarpgroupSums<float, tiles>& c, const uint32_t (&a)[4], uint64_t b) {
    wgmma_f16(c, a, b);
  }
};

// x in one or two planes, 16 columns a step. A vector of two planes has both of a step, one of one plane two steps.
template <int planes, Mma mma = mma_bf16, class Wgmma = WgmmaBf16>
struct PlanesOperand {
  using Sum = float;
  static constexpr int kXVectors = 2 * planes, kSteps = 4;

  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], const uint4& x, int step) {
    const uint32_t first[2] = {x.x, x.y}, second[2] = {x.z, x.w};
    if constexpr (planes == 2) {
      mma(c, a, first);
      mma(c, a, second);
    } else {
      mma(c, a, step % 2 == 0 ? first : second);
    }
  }
  template <int steps, int tiles>
  static __device__ __forceinline__ void start(WarpgroupSums<float, tiles>& c, const uint32_t (&a)[4], uint32_t x, int step) {
#pragma unroll
    for (int plane = 0; plane < planes; ++plane) {
      Wgmma::run(c, a, core_matrices(x + (plane * steps + step) * kStepBytes, kCoreBytes, planes * steps * kStepBytes));
    }
  }
};

template <int planes, Mma mma = mma_bf16, class Wgmma = WgmmaBf16>
struct HalfOperand : PlanesOperand<planes, mma, Wgmma> {
  static constexpr Format kFormat = Format::kBF16;
  static constexpr int kVectors = 4;
  static constexpr bool kScaled = false;

  static __device__ __forceinline__ void fragment(const uint4 (&w)[kVectors], int step, uint32_t (&a)[4]) {
    a[0] = w[step].x, a[1] = w[step].y, a[2] = w[step].z, a[3] = w[step].w;
  }
};

template <int planes>
using Bf16Operand = HalfOperand<planes>;

template <int planes>
struct F16Operand : HalfOperand<planes, mma_f16, WgmmaF16> {
  static constexpr Format kFormat = Format::kF16;
};

// A bf16 of 128 to 255 has its integer in the low bits: 128 + n less 136 is n - 8.
template <int planes>
struct Int4Operand : PlanesOperand<planes> {
  static constexpr Format kFormat = Format::kInt4;
  static constexpr int kVectors = 1;
  static constexpr bool kScaled = true;

  static __device__ __forceinline__ void fragment(const uint4 (&w)[kVectors], int step, uint32_t (&a)[4]) {
    const uint32_t word = word_of(w[0], step);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = subtract_bf16x2((word >> 4 * i & 0x000f000fu) | 0x43004300u, 0x43084308u);
  }
};

// The low seven bits as 128 + n, less 128, or 256 where the sign is set.
template <int planes>
struct Int8Operand : PlanesOperand<planes> {
  static constexpr Format kFormat = Format::kInt8;
  static constexpr int kVectors = 2;
  static constexpr bool kScaled = true;

  static __device__ __forceinline__ uint32_t two(uint32_t bytes) {
    return subtract_bf16x2((bytes & 0x007f007fu) | 0x43004300u, (bytes & 0x00800080u) | 0x43004300u);
  }
  static __device__ __forceinline__ void fragment(const uint4 (&w)[kVectors], int step, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(w[step / 2], step % 2 * 2 + i / 2);
      a[i] = two(permute_bytes(word, 0, i % 2 == 0 ? 0x4140 : 0x4342));
    }
  }
};

// e4m3's bits in bf16's places are the number times 2^-120.
template <int planes>
struct E4M3Operand : PlanesOperand<planes> {
  static constexpr Format kFormat = Format::kE4M3;
  static constexpr int kVectors = 2;
  static constexpr bool kScaled = true;

  static __device__ __forceinline__ uint32_t two(uint32_t bytes) {  // each in a half's high byte
    return multiply_bf16x2((bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 4, 0x7b807b80u);
  }
  static __device__ __forceinline__ void fragment(const uint4 (&w)[kVectors], int step, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(w[step / 2], step % 2 * 2 + i / 2);
      a[i] = two(permute_bytes(word, 0, i % 2 == 0 ? 0x1404 : 0x3424));
    }
  }
};

struct Int8RowsOperand {
  using Sum = int32_t;
  static constexpr Format kFormat = Format::kInt8Rows;
  static constexpr int kVectors = 2, kXVectors = 1, kSteps = 2;
  static constexpr bool kScaled = false;

  static __device__ __forceinline__ void fragment(const uint4 (&w)[kVectors], int step, uint32_t (&a)[4]) {
    a[0] = w[step].x, a[1] = w[step].y, a[2] = w[step].z, a[3] = w[step].w;
  }
  static __device__ __forceinline__ void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint4& x, int step) {
    const uint32_t b[2] = {step == 0 ? x.x : x.z, step == 0 ? x.y : x.w};
    mma_s8(c, a, b);
  }
  template <int steps, int tiles>
  static __device__ __forceinline__ void start(WarpgroupSums<int32_t, tiles>& c, const uint32_t (&a)[4], uint32_t x, int step) {
    wgmma_s8(c, a, core_matrices(x + step * kStepBytes, kCoreBytes, steps * kStepBytes));
  }
};

}  // namespace choral_cuda
