// The kernels of CPU level base: plain loops the compiler turns into SSE2. No FMA there, so product and sum are rounded apart;
// that makes this level equal ref/gemm.h's in-order form bit for bit.
#include <array>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "kernels/gemm/gemm_float_kernels.h"

namespace choral::kernels {
namespace {

constexpr int kMaxRows = 2;  // 2 × 16 floats are 8 of 16 xmm registers

template <int R>
void micro(const MicroArgs& args) {
  float acc[R][kPanelRows];
  for (int r = 0; r < R; ++r) {
    for (int64_t c = 0; c < kPanelRows; ++c) acc[r][c] = args.resume ? args.out[r * args.out_stride + c] : 0.0f;
  }
  const auto* w = reinterpret_cast<const float*>(args.w);
  for (int64_t k = 0; k < args.k; ++k, w += kPanelRows) {
    const float* x = args.x + k / kXChunk * kXChunk * R + k % kXChunk;
    for (int r = 0; r < R; ++r) {
      const float b = x[r * kXChunk];
      for (int64_t c = 0; c < kPanelRows; ++c) acc[r][c] += b * w[c];
    }
  }
  for (int r = 0; r < R; ++r) std::memcpy(args.out + r * args.out_stride, acc[r], sizeof acc[r]);
}

int panels_for(int) { return 1; }

MicroKernel find_micro(DType, int rows, int) {
  static constexpr std::array<MicroKernel, kMaxRows> kMicro{micro<1>, micro<2>};
  return kMicro.at(rows - 1);
}

template <DType kWeights>
void widen(const std::byte* w, int64_t k, float* out) {
  const auto* bits = reinterpret_cast<const uint16_t*>(w);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < kPanelRows; ++c) {
      out[i * kPanelRows + c] = kWeights == DType::kBF16 ? to_float(BFloat16{bits[(i / 2 * kPanelRows + c) * 2 + i % 2]})
                                                         : to_float(Float16{bits[i * kPanelRows + c]});
    }
  }
}

template <DType kWeights, int R>
void widening_micro(const MicroArgs& args) {
  widen<kWeights>(args.w, args.k, args.wide);
  MicroArgs on_wide = args;
  on_wide.w = reinterpret_cast<const std::byte*>(args.wide);
  micro<R>(on_wide);
}

MicroKernel find_widening(DType weights, int rows, int) {
  static constexpr std::array<MicroKernel, kMaxRows> kBFloat16{widening_micro<DType::kBF16, 1>, widening_micro<DType::kBF16, 2>};
  static constexpr std::array<MicroKernel, kMaxRows> kFloat16{widening_micro<DType::kF16, 1>, widening_micro<DType::kF16, 2>};
  return (weights == DType::kBF16 ? kBFloat16 : kFloat16).at(rows - 1);
}

void finish(MatrixView<const float> tile, const float* bias, bool accumulate, MatrixView<float> y) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    const float* from = tile.row(i);
    float* to = y.row(i);
    for (int64_t j = 0; j < tile.cols; ++j) {
      float v = from[j];
      if (bias != nullptr) v += bias[j];
      to[j] = accumulate ? v + to[j] : v;
    }
  }
}

}  // namespace

const FloatKernels& base_float_kernels() {
  static constexpr FloatKernels kKernels{"base mul+add", 0, 0, kMaxRows, 1, panels_for, find_micro, find_widening, finish};
  return kKernels;
}

}  // namespace choral::kernels
