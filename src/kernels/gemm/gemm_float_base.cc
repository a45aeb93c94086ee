// The kernels of CPU level base: plain loops the compiler turns into SSE2. No FMA there, so product and sum are rounded apart;
// that makes this level equal ref/gemm.h's in-order form bit for bit.
#include <array>
#include <cstring>
#include <utility>

#include "base/float8.h"
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

void widen_bfloat16(const MicroArgs& args) {
  const auto* bits = reinterpret_cast<const uint16_t*>(args.w);
  for (int64_t i = 0; i < args.k; ++i) {
    for (int64_t c = 0; c < kPanelRows; ++c) {
      args.wide[i * kPanelRows + c] = to_float(BFloat16{bits[(i / 2 * kPanelRows + c) * 2 + i % 2]});
    }
  }
}

void widen_float16(const MicroArgs& args) {
  const auto* bits = reinterpret_cast<const uint16_t*>(args.w);
  for (int64_t i = 0; i < args.k * kPanelRows; ++i) args.wide[i] = to_float(Float16{bits[i]});
}

void widen_float8(const MicroArgs& args) {
  const float* scales = args.scales;
  const std::byte* w = args.w;
  int64_t group_end = args.group_end;
  for (int64_t i = 0; i < args.k; ++i) {
    if (i == group_end) {
      scales = reinterpret_cast<const float*>(w);
      w += kPanelScaleBytes;
      group_end += args.group;
    }
    for (int64_t c = 0; c < kPanelRows; ++c) {
      const Float8E4M3 code{std::to_integer<uint8_t>(w[c * 2 + i % 2])};
      args.wide[i * kPanelRows + c] = to_float(scaled_half(code)) * scales[c];
    }
    if (i % 2 != 0) w += 2 * kPanelRows;
  }
}

using Widen = void (*)(const MicroArgs&);

template <Widen kWiden, int R>
void widening_micro(const MicroArgs& args) {
  kWiden(args);
  MicroArgs on_wide = args;
  on_wide.w = reinterpret_cast<const std::byte*>(args.wide);
  micro<R>(on_wide);
}

template <Widen kWiden>
constexpr std::array<MicroKernel, kMaxRows> kWidening{widening_micro<kWiden, 1>, widening_micro<kWiden, 2>};

MicroKernel find_widening(DType weights, int rows, int) {
  switch (weights) {
    case DType::kBF16: return kWidening<widen_bfloat16>.at(rows - 1);
    case DType::kF16: return kWidening<widen_float16>.at(rows - 1);
    default: return kWidening<widen_float8>.at(rows - 1);
  }
}

}  // namespace

const FloatKernels& base_float_kernels() {
  static constexpr FloatKernels kKernels{"base mul+add", 0, 0, kMaxRows, 1, panels_for, find_micro, find_widening};
  return kKernels;
}

}  // namespace choral::kernels
