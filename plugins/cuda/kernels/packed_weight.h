// A weight matrix as the kernels multiply by it. 16 rows make a tile record: their elements in the order in which a warp's lanes
// want them for mma.sync, blocks of 64 columns one after another, then scales and minima. A whole image is row_tiles records, and
// the order of columns where there is one. README.md has the picture.
//
// Packing runs on the host, tile by tile, on any number of threads; nothing here touches a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "choral/plugin.h"

namespace choral_cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kBlockColumns = 64;
inline constexpr int kSections = 8;  // of k, at most; each is one chain of sums, and they are added in order

enum class Format : int32_t {
  kF32,       // multiplied in float
  kF16,       // by x as two planes of f16, with a power of two for each row; as one plane where x is CHORAL_X_16
  kBF16,      // by x as two planes of bf16 or one, this and the next three; integers and e4m3 become bf16 exactly
  kInt4,      // w = scale · (code - 8) (+ min), of codes 0 to 15
  kInt8,      // w = scale · q (+ min)
  kE4M3,      // w = scale · q
  kInt8Rows,  // w = scale · q by x as int8 rows, in integers: CHORAL_X_INT8_ROWS
};

// Passed to kernels by value.
struct PackedWeight {
  const unsigned char* image;  // on the device
  const int32_t* k_order;      // in the image, or null
  int64_t rows, cols;
  int64_t tile_bytes;
  int64_t scale_offset;  // in a record: float [groups][8][2], rows g and g + 8 together; 0: no scales
  int64_t min_offset;    // in a record: the same of minima; 0: none
  int64_t sum_offset;    // in a record: int32 [16], the sum of a row's integers; 0: none
  int32_t blocks;        // of 64 columns, padded with zeros
  int32_t section_blocks;
  int32_t group;  // columns of a scale: 16, 32 or a multiple of 64, all with one scale a row
  Format format;
  int32_t activations;  // CHORAL_X_…
  int32_t has_fixed_input;
  float input_scale;
  int32_t input_offset;

  bool operator==(const PackedWeight&) const = default;
};

// Whether scales belong to groups of columns, whose sums are folded in one after another, each block of 64 columns by itself.
constexpr bool has_folds(Format format) { return format == Format::kInt4 || format == Format::kInt8 || format == Format::kE4M3; }

// What becomes of a weight, on the host; it stays with the weight for read_row.
struct PackPlan {
  PackedWeight weight{};  // image and k_order are null until they are on the device: see placed()
  int64_t row_tiles = 0;
  int64_t tail_offset = 0;  // of the order of columns
  int64_t image_bytes = 0;
  std::vector<int32_t> k_order;
  std::string format;  // for people: choral_packed_facts
  std::string kernel;
  PackedWeight placed(const void* image) const;
};

// Null, or why the kernels do not take this weight. Its parts and counts fit each other, which the caller has checked; orders and
// scales are read here and when tiles are packed.
const char* plan_packing(const choral_weight& weight, PackPlan* plan);

// Records [begin, end) of row tiles to `to`, (end - begin) · tile_bytes bytes.
void pack_tiles(const choral_weight& weight, const PackPlan& plan, int64_t begin, int64_t end, unsigned char* to);
// What follows the records, image_bytes - tail_offset bytes.
void pack_tail(const PackPlan& plan, unsigned char* to);

// Row `row` of W as floats [cols], from a copy of its record: tile_bytes bytes at row / 16 · tile_bytes of the image.
void unpack_row(const PackPlan& plan, const unsigned char* record, int64_t row, float* out);

// Bytes of a row in a file; 0: an element type that is not known.
int64_t stored_row_bytes(int32_t dtype, int64_t cols);

}  // namespace choral_cuda
