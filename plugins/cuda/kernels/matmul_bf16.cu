#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulBF16 = operand_matmul<Bf16Operand<2>>();
const OperandMatmul kMatmulBF16ByRounded = operand_matmul<Bf16Operand<1>>();

}  // namespace choral_cuda
