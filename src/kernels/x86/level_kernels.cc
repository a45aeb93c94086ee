// Which of the hand-written kernels a level of x86 runs.
#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/gemm/gemm_float_pack.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/tile_product.h"
#include "kernels/x86/gemm_float_amx.h"

namespace choral::kernels {

const FloatKernels& float_kernels(CpuLevel level) {
  if (includes(level, CpuLevel::kAvx512)) return avx512_float_kernels();
  return includes(level, CpuLevel::kAvx2) ? avx2_float_kernels() : base_float_kernels();
}

const PackKernels& pack_kernels(CpuLevel level) {
  return includes(level, CpuLevel::kAvx2) ? avx2_pack_kernels() : base_pack_kernels();
}

QuantKernel quant_kernel(QuantForm form, CpuLevel level) {
  if (includes(level, CpuLevel::kVnni)) return x86::quant_kernel_vnni(form);
  if (includes(level, CpuLevel::kAvx512)) return x86::quant_kernel_avx512(form);
  if (includes(level, CpuLevel::kAvxVnni)) return x86::quant_kernel_avxvnni(form);
  if (includes(level, CpuLevel::kAvx2)) return x86::quant_kernel_avx2(form);
  return quant_kernel_base(form);
}

const Int8Kernels& int8_kernels(CpuLevel level, int64_t rows) {
  if (includes(level, CpuLevel::kAmx) && rows > x86::vnni_int8_kernels().tile_rows) return x86::amx_int8_kernels();
  if (includes(level, CpuLevel::kVnni)) return x86::vnni_int8_kernels();
  if (includes(level, CpuLevel::kAvx512)) return x86::avx512_int8_kernels();
  if (includes(level, CpuLevel::kAvxVnni)) return x86::avxvnni_int8_kernels();
  return includes(level, CpuLevel::kAvx2) ? x86::avx2_int8_kernels() : base_int8_kernels();
}

const TileProduct* bf16_tile_product(CpuLevel level) {
  static constexpr TileProduct kAmx{"amx tiles", plan_panels_amx, most_amx_rows};
  return includes(level, CpuLevel::kAmx) && tile_unit_is_exact() ? &kAmx : nullptr;
}

}  // namespace choral::kernels
