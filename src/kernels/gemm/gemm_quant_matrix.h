// A matrix in the layout of quant_panels.h as a PackedMatrix: what gemm_quant.h packs of GGUF's blocks and gemm_integers.h of
// integers with float scales. gemm_quant.h says how it is multiplied.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/quant/quant_panels.h"

namespace choral::kernels {

struct QuantisedShape {
  QuantForm form;
  std::string name;  // format()
  int64_t n, k;      // weights of 0 follow a last block that k leaves short
  Planes planes;     // of x
};

// Writes the panel of `count` rows from `first` on to `panel`, which is zero-filled; called once for each, from any worker
// thread.
using PackPanel = FunctionRef<void(int64_t first, int64_t count, std::byte* panel)>;

Result<std::unique_ptr<PackedMatrix>> pack_panels(QuantisedShape shape, PackPanel pack, ThreadPool& pool);

}  // namespace choral::kernels
