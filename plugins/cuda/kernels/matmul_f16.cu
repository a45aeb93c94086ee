#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulF16 = operand_matmul<F16Operand<2>>();
const OperandMatmul kMatmulF16ByRounded = operand_matmul<F16Operand<1>>();

}  // namespace choral_cuda
