// The kernel of CPU level base: plain loops over 16 lanes. Sums are unsigned: a start and a correction may together leave int32
// on the way to a sum that does not.
#include <cmath>
#include <cstring>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"

namespace choral::kernels {
namespace {

void add_steps(const std::byte* weights, const std::byte* x, int64_t steps, uint32_t (&sums)[kInt8Lanes]) {
  const auto* w = reinterpret_cast<const uint8_t*>(weights);
  const auto* q = reinterpret_cast<const int8_t*>(x);
  for (int64_t s = 0; s < steps; ++s, w += kInt8StepBytes, q += kInt8Step) {
    for (int64_t lane = 0; lane < kInt8Lanes; ++lane) {
      for (int64_t i = 0; i < kInt8Step; ++i) sums[lane] += static_cast<uint32_t>(w[lane * kInt8Step + i] * q[i]);
    }
  }
}

void one_row_one_panel(const Int8Args& args) {
  for (int64_t g = 0; g < args.groups; ++g) {
    uint32_t sums[kInt8Lanes] = {};
    float scales[kInt8Lanes];
    const std::byte* header = args.header + g * args.group_bytes;
    std::memcpy(scales, header, sizeof scales);
    if (args.resume) {
      std::memcpy(sums, args.sums, sizeof sums);
    } else {
      if (args.corrected) std::memcpy(sums, header + sizeof scales, sizeof sums);
      for (uint32_t& sum : sums) sum += static_cast<uint32_t>(args.starts[g]);
    }
    add_steps(args.weights + g * args.group_bytes, args.x + g * args.steps * kInt8Step, args.steps, sums);
    if (!args.complete) {
      std::memcpy(args.sums, sums, sizeof sums);
      continue;
    }
    const bool last = g + 1 == args.groups && args.row_scales != nullptr;
    for (int64_t lane = 0; lane < kInt8Lanes; ++lane) {
      const float old = args.first && g == 0 ? 0.0f : args.out[lane];
      const float sum = std::fma(static_cast<float>(static_cast<int32_t>(sums[lane])), scales[lane], old);
      args.out[lane] = last ? sum * args.row_scales[0] : sum;
    }
  }
}

int one_panel(int) { return 1; }
Int8Micro find_micro(int, int) { return one_row_one_panel; }

}  // namespace

const Int8Kernels& base_int8_kernels() {
  static constexpr Int8Kernels kKernels{"scalar", false, 1, 1, 512, one_panel, find_micro};
  return kKernels;
}

}  // namespace choral::kernels
