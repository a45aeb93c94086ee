#include "matmul.h"
#include "matmul_inl.h"

namespace choral_cuda {

cudaError_t matmul_bf16(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out) {
  return launch_matmul<Bf16Operand>(launch, w, x, out);
}

}  // namespace choral_cuda
