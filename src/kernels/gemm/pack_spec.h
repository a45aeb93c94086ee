// A weight as a checkpoint has it: what is packed into a PackedMatrix, on the host by pack_weight(), elsewhere by the device.
#pragma once

#include "kernels/gemm/packed_matrix.h"

namespace choral::kernels {

struct PackSpec {
  std::span<const WeightRows> rows;  // parts, stacked
  DType format;                      // a float type, the GGUF type that the parts are stored in, int8 or e4m3
  // Of int8: [rows of all parts], one for each output channel; those of the product if x has a scale. Of e4m3: [rows of all
  // parts, groups].
  std::span<const float> scales = {};
  int64_t group_size = 0;  // of e4m3: k of a scale, 0: all
  RowQuant input = {};     // of int8: how x becomes int8
};

Result<std::unique_ptr<PackedMatrix>> pack_weight(const PackSpec& spec, ThreadPool& pool);

}  // namespace choral::kernels
