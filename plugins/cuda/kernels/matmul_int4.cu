#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulInt4 = operand_matmul<Int4Operand<2>>();
const OperandMatmul kMatmulInt4ByRounded = operand_matmul<Int4Operand<1>>();

}  // namespace choral_cuda
