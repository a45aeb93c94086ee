#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulInt8 = operand_matmul<Int8Operand>();

}  // namespace choral_cuda
