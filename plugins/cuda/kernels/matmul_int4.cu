#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulInt4 = operand_matmul<Int4Operand>();

}  // namespace choral_cuda
