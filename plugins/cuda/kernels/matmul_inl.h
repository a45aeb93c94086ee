// y = x·Wᵀ for one operand of operands.h, included by the file that launches it. Which kernel runs is a matter of speed alone:
// all of them have section_sums.h's order, and give the same bits.
#pragma once

#include "matmul_narrow_inl.h"
#include "matmul_stream_inl.h"
#include "matmul_wide_inl.h"

namespace choral_cuda {

template <class Operand>
cudaError_t launch_matmul(const Launch& launch, const PackedWeight& w, const PreparedX& x, const Output& out) {
  using Shape = WideShape<Operand>;
  const dim3 wide(static_cast<unsigned>(ceil_div<int64_t>(w.rows, Shape::kBlockRowTiles * kTileRows)),
                  static_cast<unsigned>(ceil_div(x.row_tiles, Shape::kBlockTokenTiles)));
  if (x.row_tiles > 8 && int64_t{wide.x} * wide.y * 2 >= launch.sm_count) {
    return launch_kernel(wide_kernel<Operand>, {wide, dim3(kMatmulThreads), Shape::kSharedBytes}, launch.stream, w, x, out);
  }
  if (x.row_tiles == 1) return launch_narrow<Operand, 1, 1>(launch, w, x, out);
  if (x.row_tiles == 2) return launch_narrow<Operand, 2, 2>(launch, w, x, out);
  return x.row_tiles <= 4 ? launch_stream<Operand, 4>(launch, w, x, out) : launch_stream<Operand, 8>(launch, w, x, out);
}

}  // namespace choral_cuda
