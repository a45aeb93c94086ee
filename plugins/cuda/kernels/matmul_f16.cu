#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulF16 = operand_matmul<F16Operand>();

}  // namespace choral_cuda
