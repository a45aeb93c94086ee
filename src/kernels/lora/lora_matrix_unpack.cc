// The way back from LoRAMatrix's panels to rows of A and B: the layouts of lora_micro.h read value by value.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/float16.h"
#include "kernels/lora/lora_matrix.h"

namespace choral::kernels {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Value `i` of plain ones, or of int8 without their scale.
float value_at(LoRAStore store, const std::byte* values, int64_t i) {
  switch (store) {
    case LoRAStore::kF32: return load<float>(values + i * 4);
    case LoRAStore::kF16: return to_float(Float16{load<uint16_t>(values + i * 2)});
    case LoRAStore::kBF16: return to_float(BFloat16{load<uint16_t>(values + i * 2)});
    case LoRAStore::kI8:
    case LoRAStore::kQ8: return static_cast<float>(load<int8_t>(values + i));
  }
  return 0;
}

// Where value c of a pair's row 0 or 1 stands.
int64_t place_in_pair(LoRAStore store, int64_t row, int64_t c) {
  return store == LoRAStore::kBF16 ? 2 * c + row : row * kLoRAColumns + c;
}

}  // namespace

void LoRAMatrix::read_a(int64_t rank, std::span<float> out) const {
  CHORAL_CHECK(rank >= 0 && rank < rank_ && std::ssize(out) == in_, "a row of A is as wide as the layer");
  const int64_t bytes = chunk_bytes(a_store_), chunks = ceil_div(in_, kLoRAChunk);
  const int64_t group = rank / kShrinkRanks * kShrinkRanks, ranks = std::min(kShrinkRanks, rank_ - group);
  const std::byte* chunk = panels_ + (group * chunks + rank - group) * bytes;
  const float row_scale = row_scale_[rank];
  for (int64_t begin = 0; begin < in_; begin += kLoRAChunk, chunk += ranks * bytes) {
    const bool has_scale = a_store_ == LoRAStore::kQ8;
    const float scale = has_scale ? load<float>(chunk) * row_scale : row_scale;
    const std::byte* values = chunk + (has_scale ? sizeof(float) : 0);
    for (int64_t k = 0; k < std::min(kLoRAChunk, in_ - begin); ++k) {
      const int64_t at = place_in_pair(a_store_, k / kLoRAColumns, k % kLoRAColumns);
      out[begin + k] = scale * value_at(a_store_, values, at);
    }
  }
}

void LoRAMatrix::read_b(size_t s, int64_t col, std::span<float> out) const {
  const Slice& slice = slices_.at(s);
  CHORAL_CHECK(col >= slice.out_begin && col < slice.out_end && std::ssize(out) == slice.rank,
               "a column of the slice has a value for each of its ranks");
  const int64_t index = col / kLoRAColumns - slice.out_begin / kLoRAColumns, c = col % kLoRAColumns;
  const std::byte* panel = panels_ + slice.b_offset + index * choral::kernels::panel_bytes(b_store_, slice.rank);
  const bool scaled_blocks = b_store_ == LoRAStore::kQ8, scaled_panel = b_store_ == LoRAStore::kI8;
  constexpr int64_t kScaleBytes = kLoRAColumns * static_cast<int64_t>(sizeof(float));
  const int64_t block_bytes = kScaleBytes + kLoRAChunk * kLoRAColumns;  // of kQ8
  for (int64_t j = 0; j < slice.rank; ++j) {
    const std::byte* block = panel + (scaled_blocks ? j / kLoRAChunk * block_bytes : 0);
    const std::byte* values = block + (scaled_blocks || scaled_panel ? kScaleBytes : 0);
    const int64_t row = scaled_blocks ? j % kLoRAChunk : j;
    const bool paired = row / 2 * 2 + 1 < slice.rank;  // the last of an odd number stands alone
    const int64_t at = row / 2 * 2 * kLoRAColumns + (paired ? place_in_pair(b_store_, row % 2, c) : c);
    const float scale = scaled_blocks || scaled_panel ? load<float>(block + c * static_cast<int64_t>(sizeof(float))) : 1.0F;
    out[j] = scale * value_at(b_store_, values, at);
  }
}

}  // namespace choral::kernels
