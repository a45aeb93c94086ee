#include "matmul.h"
#include "matmul_inl.h"

namespace choral_cuda {

cudaError_t matmul_int8_rows(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out) {
  return launch_matmul<Int8RowsOperand>(launch, w, x, out);
}

}  // namespace choral_cuda
