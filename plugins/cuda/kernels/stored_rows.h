// Rows of weights as files have them, read into numbers: floats, or integers with scales. Host only, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "choral/plugin.h"

namespace choral_cuda {

// What blocks of a GGUF type hold, or an i8 weight with scales: w = scale · q + min.
struct IntegerRow {
  std::vector<int8_t> q;
  std::vector<float> scales;  // one for each group
  std::vector<float> mins;    // as many; zeros where the type has none
};

struct BlockType {
  int elements = 0;  // of a block; 0: not a block type that is known
  int bytes = 0;
  int group = 0;  // columns of a scale
  bool has_min = false;
  bool four_bits = false;  // q is from -8 to 7, or from 0 to 15 with a minimum
};
BlockType block_type(int32_t dtype);

// A row of `cols` columns, whole blocks.
void read_blocks(int32_t dtype, const unsigned char* row, int64_t cols, IntegerRow* out);
// The same as floats, or a row of f32, f16, bf16 or e4m3.
void read_floats(int32_t dtype, const unsigned char* row, int64_t cols, std::vector<float>* out);

// Where the stored row lies that becomes row `row` of W.
const unsigned char* stored_row(const choral_weight& weight, int64_t row);

}  // namespace choral_cuda
