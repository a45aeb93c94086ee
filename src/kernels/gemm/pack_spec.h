// A weight as a checkpoint has it: what is packed into a PackedMatrix, on the host by pack_weight(), elsewhere by the device.
#pragma once

#include "kernels/gemm/gemm_integers.h"

namespace choral::kernels {

// How integers of W meet x. Floats of W are multiplied with floats.
enum class Activations : uint8_t {
  kFull,        // in two int8 planes, which carry 16 bits of x
  kInt8Blocks,  // as int8 with a scale for each row and 32 k
  kInt8Rows,    // as int8 with a scale for each row, or one for all rows: fixed_input
  k16Bits,      // any W of 16 bits and less: x rounded once to f16 or bf16. A device's form; packed here it is kFull
};

struct PackSpec {
  std::span<const WeightRows> rows;  // parts, stacked
  DType format;                      // a float type, the GGUF type that the parts are stored in, int8 or e4m3
  Activations activations = Activations::kFull;

  // Of int8, an integer a byte: w[i, j] = scale[i, group of j] · (q[i, j] − zero[i, group of j]), w's column j for x[k_order[j]].
  int bits = 8;  // that q needs: 8, or 4 for -8 to 7, two of which are packed into a byte
  Codebook codebook = Codebook::kLinear;
  int64_t group_size = 0;              // k of a scale; 0: all
  std::span<const float> scales{};     // [rows of all parts, groups]; those of the product if x has a fixed scale
  std::span<const int16_t> zeros{};    // as many, or none: 0
  std::span<const int32_t> k_order{};  // [k], or none: as x is
  std::optional<StaticQuant> fixed_input{};
};

Result<std::unique_ptr<PackedMatrix>> pack_weight(const PackSpec& spec, ThreadPool& pool);

}  // namespace choral::kernels
