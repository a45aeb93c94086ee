// Quantised blocks as plain integers and scales, before they are laid out in panels, and how GGUF's become such.
// GGUF's formats: little endian, elements of a row in order; see the table in quant_panels_source.cc. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace choral::kernels {

// Up to 8 blocks of 32 of one row, as many as share a header in the panel. Which scales are set depends on QuantScales.
struct QuantSourceGroup {
  uint8_t n[8][32];   // stored as unsigned: q + 2^(bits-1) for symmetric types; the code of a codebook
  uint16_t d[2];      // fp16 bits: kD one a block; kDM, kK, kK16M d[0]
  uint16_t m;         // fp16 bits: kDM m, kK and kK16M dmin
  uint8_t scale[16];  // kK: [8]; kK8: [8] and kK16: [16], two's complement; kK16M: [16], scale | min << 4
  uint8_t min[8];     // kK
  float f[2];         // kK8, kK16, kF d; kFM d, m
};

// Reads `blocks` blocks from `block` (their index in the row) on; never beyond them. K types read a whole super-block of 8.
void read_quant_source(DType type, const std::byte* row, int64_t block, int blocks, QuantSourceGroup& out);

}  // namespace choral::kernels
