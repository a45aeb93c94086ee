// y = x·Wᵀ for one operand of operands.h, included by the file that launches it. Which kernel runs is a matter of speed alone:
// all of them have section_sums.h's order, and give the same bits.
#pragma once

#include "matmul.h"
#include "matmul_narrow_inl.h"
#include "matmul_stream_inl.h"
#include "matmul_warpgroup_inl.h"
#include "matmul_wide_inl.h"

namespace choral_cuda {

template <class Operand, int most>
cudaError_t launch_matmul(const Launch& launch, const Products<most>& p) {
  if (p.by_warpgroups != 0) return launch_warpgroups<Operand>(launch, p);
  switch (p.block_tiles) {
    case 1: return launch_narrow<Operand, 1>(launch, p);
    case 2: return launch_narrow<Operand, 2>(launch, p);
    case 4: return launch_stream<Operand, 4>(launch, p);
    case 8: return launch_stream<Operand, 8>(launch, p);
    default: break;
  }
  using Shape = WideShape<Operand>;
  const dim3 wide(static_cast<unsigned>(ceil_div<int64_t>(p.form.rows, Shape::kBlockRowTiles * kTileRows)),
                  static_cast<unsigned>(ceil_div(p.tile_count, Shape::kBlockTokenTiles)));
  const bool fits = Shape::kSharedBytes <= launch.block_shared_bytes;
  if (!fits || int64_t{wide.x} * wide.y * 2 < launch.sm_count) return launch_stream<Operand, 8>(launch, p);
  return launch_kernel(wide_kernel<Operand, most>, {wide, dim3(kMatmulThreads), Shape::kSharedBytes}, launch, p);
}

template <class Operand>
constexpr OperandMatmul operand_matmul() {
  return {launch_matmul<Operand, 1>, launch_matmul<Operand, kMostProducts>};
}

}  // namespace choral_cuda
