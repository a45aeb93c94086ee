// Unsigned fields of 2 to 8 bits in rows of little-endian 32-bit words, as checkpoints pack them. Words may stand at any address.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace choral::quant {

enum class FieldLayout : uint8_t {
  kDense,  // one after the other, across words
  kWhole,  // 32 / bits in each word, the bits above them unused
};

// Words of a row of `count` fields.
int64_t field_words(int64_t count, int bits, FieldLayout layout);

// Field i of a row of words that are `word_stride` bytes apart: out[i · out_stride] = field − 2^(bits − 1).
void read_fields(const std::byte* words, int64_t word_stride, int64_t count, int bits, FieldLayout layout, int8_t* out,
                 int64_t out_stride);

}  // namespace choral::quant
