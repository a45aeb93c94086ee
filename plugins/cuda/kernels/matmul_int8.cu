#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulInt8 = operand_matmul<Int8Operand<2>>();
const OperandMatmul kMatmulInt8ByRounded = operand_matmul<Int8Operand<1>>();

}  // namespace choral_cuda
