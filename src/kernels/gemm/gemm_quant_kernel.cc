#include "kernels/gemm/gemm_quant_kernel.h"

#include <cmath>

namespace choral::kernels {
namespace {

// The form for CPUs without AVX2: integers of a block as plain loops over 16 lanes, then one fma a lane.
void multiply_base(const QuantKernelArgs& args) {
  const QuantForm& form = args.form;
  const int subs = form.sub_blocks(), width = kQuantBlock / subs;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int c = 0; c < args.panel_count * kQuantLanes; ++c) args.out[row * kQuantTileColumns + c] = 0.0f;
  }
  for (int c = 0; c < args.panel_count * kQuantLanes; ++c) {
    const std::byte* panel = args.panels + c / kQuantLanes * args.panel_bytes;
    for (int64_t b = 0; b < args.blocks; ++b) {
      const QuantLaneBlock w = read_quant_lane(form, panel, b, c % kQuantLanes);
      for (int64_t row = 0; row < args.rows; ++row) {
        const QuantisedBlock& x = args.x[row * args.blocks + b];
        float& acc = args.out[row * kQuantTileColumns + c];
        for (int s = 0; s < subs; ++s) {
          int32_t sum = form.zero() == 0 ? 0 : x.start[s];
          for (int i = s * width; i < (s + 1) * width; ++i) sum += w.n[i] * x.q[i];
          acc = std::fma(static_cast<float>(sum), w.scale[s] * x.scale, acc);
        }
        for (int s = 0; form.has_min() && s < subs; ++s) {
          acc = std::fma(w.min[s], subs == 1 ? x.sum : x.scale * static_cast<float>(x.start[s]), acc);
        }
      }
    }
  }
}

}  // namespace

QuantKernel quant_kernel_base(QuantForm form) {
  return {"scalar", start_factor(form, form.zero()), multiply_base, multiply_base};
}

}  // namespace choral::kernels
