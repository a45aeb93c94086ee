#include "quant/integers/bit_fields.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"

namespace choral::quant {
namespace {

uint32_t word_at(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Widths that fill words exactly, where both layouts are one.
template <int kBits>
void read_whole_fields(const std::byte* words, int64_t word_stride, int64_t count, int8_t* out, int64_t out_stride) {
  constexpr int kFieldsOfWord = 32 / kBits;
  constexpr int kMiddle = 1 << (kBits - 1);
  for (int64_t i = 0; i < count; i += kFieldsOfWord, words += word_stride) {
    uint32_t word = word_at(words);
    const int64_t end = i + kFieldsOfWord < count ? i + kFieldsOfWord : count;
    for (int64_t at = i; at < end; ++at, word >>= kBits) {
      out[at * out_stride] = static_cast<int8_t>(static_cast<int>(word & ((1u << kBits) - 1)) - kMiddle);
    }
  }
}

}  // namespace

int64_t field_words(int64_t count, int bits, FieldLayout layout) {
  return layout == FieldLayout::kDense ? ceil_div(count * bits, 32) : ceil_div(count, 32 / bits);
}

void read_fields(const std::byte* words, int64_t word_stride, int64_t count, int bits, FieldLayout layout, int8_t* out,
                 int64_t out_stride) {
  if (bits == 4) return read_whole_fields<4>(words, word_stride, count, out, out_stride);
  if (bits == 8) return read_whole_fields<8>(words, word_stride, count, out, out_stride);
  if (bits == 2) return read_whole_fields<2>(words, word_stride, count, out, out_stride);
  const int half = 1 << (bits - 1);
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bit = layout == FieldLayout::kDense ? i * bits : i / (32 / bits) * 32 + i % (32 / bits) * bits;
    const int64_t word = bit / 32, shift = bit % 32;
    uint32_t field = word_at(words + word * word_stride) >> shift;
    if (shift + bits > 32) field |= word_at(words + (word + 1) * word_stride) << (32 - shift);
    out[i * out_stride] = static_cast<int8_t>(static_cast<int>(field & mask) - half);
  }
}

void write_fields(const int8_t* in, int64_t count, int bits, uint32_t* words) {
  const int per_word = 32 / bits, half = 1 << (bits - 1);
  for (int64_t i = 0; i < count; i += per_word, ++words) {
    uint32_t word = 0;
    for (int64_t at = i; at < std::min(count, i + per_word); ++at) {
      word |= static_cast<uint32_t>(in[at] + half) << ((at - i) * bits);
    }
    *words = word;
  }
}

}  // namespace choral::quant
