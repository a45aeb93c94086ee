#include "kernels/gemm/gemm_quant_kernel.h"

#include <cmath>

namespace choral::kernels {
namespace {

// The form for CPUs without AVX2: integers of a block as plain loops over 16 lanes, then one fma a lane.
template <DType kType>
void multiply_base(const QuantKernelArgs& args) {
  const QuantForm form = quant_form(kType);
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
          int32_t sum = x.start[s];
          for (int i = s * width; i < (s + 1) * width; ++i) sum += w.n[i] * x.q[i];
          acc = std::fma(static_cast<float>(sum), w.scale[s] * x.scale, acc);
        }
        if (form.has_min()) acc = std::fma(w.min, x.sum, acc);
      }
    }
  }
}

template <DType kType>
QuantKernel base_kernel() {
  return {"scalar", quant_form(kType).zero(), multiply_base<kType>, multiply_base<kType>};
}

}  // namespace

QuantKernel quant_kernel_base(DType type) {
  switch (type) {
    case DType::kQ8_0: return base_kernel<DType::kQ8_0>();
    case DType::kQ4_0: return base_kernel<DType::kQ4_0>();
    case DType::kQ4_1: return base_kernel<DType::kQ4_1>();
    case DType::kQ5_0: return base_kernel<DType::kQ5_0>();
    case DType::kQ5_1: return base_kernel<DType::kQ5_1>();
    case DType::kQ4_K: return base_kernel<DType::kQ4_K>();
    case DType::kQ5_K: return base_kernel<DType::kQ5_K>();
    default: return base_kernel<DType::kQ6_K>();
  }
}

QuantKernel quant_kernel(DType type, CpuLevel level) {
  if (level >= CpuLevel::kVnni) return x86::quant_kernel_vnni(type);
  if (level >= CpuLevel::kAvx512) return x86::quant_kernel_avx512(type);
  if (level >= CpuLevel::kAvx2) return x86::quant_kernel_avx2(type);
  return quant_kernel_base(type);
}

}  // namespace choral::kernels
