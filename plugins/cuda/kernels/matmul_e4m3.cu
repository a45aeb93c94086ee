#include "matmul.h"
#include "matmul_inl.h"

namespace choral_cuda {

cudaError_t matmul_e4m3(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out) {
  return launch_matmul<E4M3Operand>(launch, w, x, out);
}

}  // namespace choral_cuda
