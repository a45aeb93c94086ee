#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulBF16 = operand_matmul<Bf16Operand>();

}  // namespace choral_cuda
