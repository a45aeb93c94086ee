// A CPU that no kernels were written for: base, and what Highway makes of the others.
#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/gemm/gemm_float_pack.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/tile_product.h"

namespace choral::kernels {

const FloatKernels& float_kernels(CpuLevel) { return base_float_kernels(); }
const PackKernels& pack_kernels(CpuLevel) { return base_pack_kernels(); }
QuantKernel quant_kernel(QuantForm form, CpuLevel) { return quant_kernel_base(form); }
const Int8Kernels& int8_kernels(CpuLevel, int64_t) { return base_int8_kernels(); }
const TileProduct* bf16_tile_product(CpuLevel) { return nullptr; }

}  // namespace choral::kernels
