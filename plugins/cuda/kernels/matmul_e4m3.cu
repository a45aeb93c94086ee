#include "matmul_inl.h"

namespace choral_cuda {

const OperandMatmul kMatmulE4M3 = operand_matmul<E4M3Operand>();

}  // namespace choral_cuda
