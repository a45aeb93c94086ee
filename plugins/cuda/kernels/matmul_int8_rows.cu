#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulInt8Rows = operand_matmul<Int8RowsOperand>();

}  // namespace choral_cuda
