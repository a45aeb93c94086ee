#include "kernels/quant/quantise_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace choral::kernels {
namespace {

constexpr int kBlock = 32;

void store_half(float value, std::byte* p) {
  const Float16 half = to_float16(value);
  std::memcpy(p, &half.bits, sizeof half.bits);
}

float inverse(float d) { return d == 0 ? 0 : 1.0f / d; }

// Element i in the low nibble of byte i, element i + 16 in the high one.
template <class Code>
void store_nibbles(Code code, std::byte* p) {
  for (int i = 0; i < kBlock / 2; ++i) p[i] = static_cast<std::byte>(code(i) | code(i + kBlock / 2) << 4);
}

void block_q8_0(const float* x, std::byte* b) {
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  const float d = largest / 127.0f, id = inverse(d);
  store_half(d, b);
  for (int i = 0; i < kBlock; ++i) b[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * id)));
}

void block_q4_0(const float* x, std::byte* b) {
  float farthest = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::abs(x[i]) > std::abs(farthest)) farthest = x[i];
  }
  const float d = farthest / -8.0f, id = inverse(d);
  store_half(d, b);
  // Product and sum are each rounded, as the package does it: in ggml they are one operation or two, as its compiler likes.
  store_nibbles([&](int i) { return std::min(15, static_cast<int>(x[i] * id + 8.5F)); }, b + 2);
}

void block_q4_1(const float* x, std::byte* b) {
  const auto [least, greatest] = std::minmax_element(x, x + kBlock);
  const float m = *least, d = (*greatest - m) / 15.0f, id = inverse(d);
  store_half(d, b);
  store_half(m, b + 2);
  store_nibbles([&](int i) { return std::min(15, static_cast<int>((x[i] - m) * id + 0.5f)); }, b + 4);
}

using Block = void (*)(const float*, std::byte*);
Block block_of(DType type) {
  switch (type) {
    case DType::kQ8_0: return block_q8_0;
    case DType::kQ4_0: return block_q4_0;
    case DType::kQ4_1: return block_q4_1;
    default: return nullptr;
  }
}

}  // namespace

bool can_quantise(DType type) { return block_of(type) != nullptr; }

void quantise_row(DType type, const float* x, int64_t elements, std::byte* row) {
  const Block block = block_of(type);
  CHORAL_CHECK(block != nullptr && elements % kBlock == 0, "whole blocks of a type that is made here");
  for (int64_t i = 0; i < elements; i += kBlock) block(x + i, row + row_bytes(type, i));
}

}  // namespace choral::kernels
