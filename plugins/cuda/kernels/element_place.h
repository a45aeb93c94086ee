// Where an element of W lies in its row tile's record. A block of 64 columns has the bytes of its 16 rows in the order of mma's A
// fragments (ptx.h), so that each lane's are 16 bytes, and a warp reads 512 bytes in one go:
//   16 bits      [4 k16][lane][8 elements]
//   8 bits       [2 k32][lane][2 k16][8 elements]
//   4 bits       [lane][4 k16][8 elements], the two of a register four nibbles apart
//   int8 rows    [2 k32][lane][16 elements], of mma's 8-bit fragments
//   f32          [16 k4][16 rows][4], for plain multiplication
#pragma once

#include "float16.h"
#include "packed_weight.h"

namespace choral_cuda {

CHORAL_ANYWHERE constexpr int block_bytes(Format format) {
  return format == Format::kF32                              ? 4096
         : format == Format::kF16 || format == Format::kBF16 ? 2048
         : format == Format::kInt4                           ? 512
                                                             : 1024;
}

// The place in a 16x16 fragment of the element at (row, column) of A.
CHORAL_ANYWHERE int fragment_place(int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2;
  return lane * 8 + (row / 8 + column / 8 * 2) * 2 + column % 2;
}

// In elements from the block's begin; of kInt4 in nibbles.
CHORAL_ANYWHERE int element_place(Format format, int row, int column) {
  const int place = fragment_place(row, column % 16), lane = place / 8, element = place % 8, step = column / 16;
  switch (format) {
    case Format::kF32: return column / 4 * 64 + row * 4 + column % 4;
    case Format::kF16:
    case Format::kBF16: return step * 256 + place;
    case Format::kInt4: return lane * 32 + step * 8 + element / 2 + element % 2 * 4;
    case Format::kInt8:
    case Format::kE4M3: return step / 2 * 512 + lane * 16 + step % 2 * 8 + element;
    case Format::kInt8Rows: {
      const int k = column % 32, reg = row / 8 + k / 16 * 2;
      return column / 32 * 512 + (row % 8 * 4 + k % 16 / 4) * 16 + reg * 4 + k % 4;
    }
  }
  return 0;
}

// Where scales of a row lie among those of its group.
CHORAL_ANYWHERE int scale_place(int row) { return row % 8 * 2 + row / 8; }

// Element (row, column) of a record as the products multiply by it.
CHORAL_ANYWHERE float element_of(const PackedWeight& w, const unsigned char* record, int row, int64_t column) {
  const unsigned char* block = record + column / kBlockColumns * block_bytes(w.format);
  const int at = element_place(w.format, row, static_cast<int>(column % kBlockColumns));
  float value = 0.0f;
  switch (w.format) {
    case Format::kF32: return reinterpret_cast<const float*>(block)[at];
    case Format::kF16: return from_f16(reinterpret_cast<const uint16_t*>(block)[at]);
    case Format::kBF16: return from_bf16(reinterpret_cast<const uint16_t*>(block)[at]);
    case Format::kInt4: value = static_cast<float>((block[at / 2] >> at % 2 * 4 & 15) - 8); break;
    case Format::kInt8:
    case Format::kInt8Rows: value = static_cast<float>(static_cast<signed char>(block[at])); break;
    case Format::kE4M3: value = from_e4m3(block[at]); break;
  }
  const int64_t scale_at = column / w.group * kTileRows + scale_place(row);
  float scale = reinterpret_cast<const float*>(record + w.scale_offset)[scale_at];
  if (w.has_fixed_input != 0) scale /= w.input_scale;
  value *= scale;
  return w.min_offset == 0 ? value : value + reinterpret_cast<const float*>(record + w.min_offset)[scale_at];
}

}  // namespace choral_cuda
