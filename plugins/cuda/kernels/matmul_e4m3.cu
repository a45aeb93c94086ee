#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulE4M3 = operand_matmul<E4M3Operand<2>>();
const OperandMatmul kMatmulE4M3ByRounded = operand_matmul<E4M3Operand<1>>();

}  // namespace choral_cuda
