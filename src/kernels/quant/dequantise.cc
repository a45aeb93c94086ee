#include "kernels/quant/dequantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/quant/stored_types.h"

namespace choral::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read in place");

constexpr int kBlock = 32;        // elements of a simple block
constexpr int kSuperBlock = 256;  // elements of a K block

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float load_half(const std::byte* p) { return to_float(Float16{load<uint16_t>(p)}); }
int byte_at(const std::byte* p, int i) { return std::to_integer<int>(p[i]); }
int low_nibble(const std::byte* p, int i) { return byte_at(p, i) & 15; }
int high_nibble(const std::byte* p, int i) { return byte_at(p, i) >> 4; }

// d, q[32]
void block_q8_0(const std::byte* b, float* out) {
  const float d = load_half(b);
  for (int i = 0; i < kBlock; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(byte_at(b + 2, i)));
}

// d, 16 bytes: element i in the low nibble of byte i, element i + 16 in the high one
void block_q4_0(const std::byte* b, float* out) {
  const float d = load_half(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(b + 2, i) - 8);
    out[i + 16] = d * static_cast<float>(high_nibble(b + 2, i) - 8);
  }
}

void block_q4_1(const std::byte* b, float* out) {
  const float d = load_half(b);
  const float m = load_half(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(b + 4, i)) + m;
    out[i + 16] = d * static_cast<float>(high_nibble(b + 4, i)) + m;
  }
}

// The fifth bits of a Q5 block: bit i of a 32-bit word belongs to element i.
int fifth_bit(uint32_t word, int i) { return static_cast<int>((word >> i) & 1u) << 4; }

void block_q5_0(const std::byte* b, float* out) {
  const float d = load_half(b);
  const auto high = load<uint32_t>(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((low_nibble(b + 6, i) | fifth_bit(high, i)) - 16);
    out[i + 16] = d * static_cast<float>((high_nibble(b + 6, i) | fifth_bit(high, i + 16)) - 16);
  }
}

void block_q5_1(const std::byte* b, float* out) {
  const float d = load_half(b);
  const float m = load_half(b + 2);
  const auto high = load<uint32_t>(b + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(b + 8, i) | fifth_bit(high, i)) + m;
    out[i + 16] = d * static_cast<float>(high_nibble(b + 8, i) | fifth_bit(high, i + 16)) + m;
  }
}

// The j-th of eight (scale, min) pairs of six bits, packed in 12 bytes.
struct ScaleMin {
  float scale, min;
};
ScaleMin scale_min(const std::byte* b, int j) {
  if (j < 4) return {static_cast<float>(byte_at(b, j) & 63), static_cast<float>(byte_at(b, j + 4) & 63)};
  return {static_cast<float>((byte_at(b, j + 4) & 15) | ((byte_at(b, j - 4) >> 6) << 4)),
          static_cast<float>((byte_at(b, j + 4) >> 4) | ((byte_at(b, j) >> 6) << 4))};
}

// d, dmin, 12 bytes of pairs, 128 bytes: of each 64 elements the first 32 are low nibbles, the next 32 high ones
void block_q4_k(const std::byte* b, float* out) {
  const float d = load_half(b);
  const float dmin = load_half(b + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin pair = scale_min(b + 4, j);
    const float scale = d * pair.scale;
    const float min = dmin * pair.min;
    const std::byte* q = b + 16 + j / 2 * kBlock;
    for (int i = 0; i < kBlock; ++i) {
      const int value = j % 2 == 0 ? low_nibble(q, i) : high_nibble(q, i);
      out[j * kBlock + i] = scale * static_cast<float>(value) - min;
    }
  }
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte i belongs to element i of sub-block j.
void block_q5_k(const std::byte* b, float* out) {
  const float d = load_half(b);
  const float dmin = load_half(b + 2);
  const std::byte* high = b + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin pair = scale_min(b + 4, j);
    const float scale = d * pair.scale;
    const float min = dmin * pair.min;
    const std::byte* q = b + 48 + j / 2 * kBlock;
    for (int i = 0; i < kBlock; ++i) {
      const int nibble = j % 2 == 0 ? low_nibble(q, i) : high_nibble(q, i);
      const int value = nibble | (((byte_at(high, i) >> j) & 1) << 4);
      out[j * kBlock + i] = scale * static_cast<float>(value) - min;
    }
  }
}

// ql[128], qh[64], int8 scales[16], d. Half h of 128 elements: rows of 32 are ql[0:32] low, ql[32:64] low, ql[0:32] high,
// ql[32:64] high; row r takes its two upper bits from qh at shift 2r; one scale for 16 elements.
void block_q6_k(const std::byte* b, float* out) {
  const float d = load_half(b + 208);
  for (int h = 0; h < 2; ++h) {
    for (int r = 0; r < 4; ++r) {
      const std::byte* low = b + h * 64 + (r % 2) * kBlock;
      const std::byte* high = b + 128 + h * kBlock;
      for (int i = 0; i < kBlock; ++i) {
        const int nibble = r < 2 ? low_nibble(low, i) : high_nibble(low, i);
        const int value = (nibble | (((byte_at(high, i) >> (2 * r)) & 3) << 4)) - 32;
        const float scale = d * static_cast<float>(static_cast<int8_t>(byte_at(b + 192, h * 8 + r * 2 + i / 16)));
        out[h * 128 + r * kBlock + i] = scale * static_cast<float>(value);
      }
    }
  }
}

// 16 bytes of a (scale, min) pair each, 64 bytes of two-bit values, d, dmin. Half h of 128 elements takes bytes 32h to 32h + 31;
// row r of 32 elements stands at shift 2r; one pair for 16 elements.
void block_q2_k(const std::byte* b, float* out) {
  const float d = load_half(b + 80);
  const float dmin = load_half(b + 82);
  for (int i = 0; i < kSuperBlock; ++i) {
    const float scale = d * static_cast<float>(low_nibble(b, i / 16));
    const float min = dmin * static_cast<float>(high_nibble(b, i / 16));
    const int value = (byte_at(b + 16 + i / 128 * kBlock, i % kBlock) >> (i / kBlock % 4 * 2)) & 3;
    out[i] = scale * static_cast<float>(value) - min;
  }
}

// 32 bytes of third bits (bit j of byte i belongs to element i of sub-block j), 64 bytes as Q2_K's, 12 bytes of scales, d. Of
// scale j the low four bits are a nibble of bytes 0-7 (j < 8: the low one), the two upper bits a pair of byte 8 + j % 4.
void block_q3_k(const std::byte* b, float* out) {
  const float d = load_half(b + 108);
  const std::byte* scales = b + 96;
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? low_nibble(scales, j) : high_nibble(scales, j - 8);
    const int high = (byte_at(scales + 8, j % 4) >> (j / 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int pair = (byte_at(b + 32 + i / 128 * kBlock, i % kBlock) >> (i / kBlock % 4 * 2)) & 3;
      const int third = (byte_at(b, i % kBlock) >> (i / kBlock)) & 1;
      out[i] = scale * static_cast<float>((pair | third << 2) - 4);
    }
  }
}

constexpr std::array<float, 16> kIQ4Values{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// 16 bytes with the places of Q4_0's.
void scale_table(float scale, const std::array<float, 16>& table, const std::byte* nibbles, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * table[static_cast<size_t>(low_nibble(nibbles, i))];
    out[i + 16] = scale * table[static_cast<size_t>(high_nibble(nibbles, i))];
  }
}

// d, 16 bytes
void block_iq4_nl(const std::byte* b, float* out) { scale_table(load_half(b), kIQ4Values, b + 2, out); }

// d, a 16-bit word of eight upper pairs and 4 bytes of eight lower nibbles of the scales, 16 bytes for each 32 elements
void block_iq4_xs(const std::byte* b, float* out) {
  const float d = load_half(b);
  const auto upper = load<uint16_t>(b + 2);
  for (int j = 0; j < 8; ++j) {
    const int low = j % 2 == 0 ? low_nibble(b + 4, j / 2) : high_nibble(b + 4, j / 2);
    const float scale = d * static_cast<float>((low | ((upper >> (2 * j)) & 3) << 4) - 32);
    scale_table(scale, kIQ4Values, b + 8 + 16 * j, out + j * kBlock);
  }
}

// Bytes of digits to base 3, most significant first, as fractions of 256; d. Of 32 bytes the first digits are the first 32
// elements, the second ones the next, to the fifth; of 16 bytes likewise; of 4 bytes there are four.
void block_tq1_0(const std::byte* b, float* out) {
  const float d = load_half(b + 52);
  struct Run {
    int bytes, digits;
  };
  const std::byte* from = b;
  for (const Run run : {Run{32, 5}, Run{16, 5}, Run{4, 4}}) {
    int power = 3;
    for (int digit = 0; digit < run.digits; ++digit, power *= 3) {
      for (int i = 0; i < run.bytes; ++i) *out++ = d * static_cast<float>(byte_at(from, i) * power / 256 % 3 - 1);
    }
    from += run.bytes;
  }
}

// 64 bytes as Q2_K's, d
void block_tq2_0(const std::byte* b, float* out) {
  const float d = load_half(b + 64);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int value = (byte_at(b + i / 128 * kBlock, i % kBlock) >> (i / kBlock % 4 * 2)) & 3;
    out[i] = d * static_cast<float>(value - 1);
  }
}

// An exponent, 16 bytes of E2M1 codes with the places of Q4_0's. The table is twice their numbers, so that it is whole.
void block_mxfp4(const std::byte* b, float* out) {
  constexpr std::array<float, 16> kTwice{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  scale_table(std::ldexp(1.0f, byte_at(b, 0) - 128), kTwice, b + 1, out);
}

template <int kElements, class Block>
void each_block(DType type, const std::byte* row, int64_t elements, float* out, Block block) {
  const int64_t bytes = facts(type).block_bytes;
  CHORAL_DCHECK(elements % kElements == 0, "a row is whole blocks");
  for (int64_t i = 0; i < elements; i += kElements, row += bytes) block(row, out + i);
}

template <class T, class Convert>
void each_element(const std::byte* row, int64_t elements, float* out, Convert convert) {
  for (int64_t i = 0; i < elements; ++i) out[i] = convert(load<T>(row + i * static_cast<int64_t>(sizeof(T))));
}

}  // namespace

std::span<const DType> stored_types() {
  static constexpr std::array kTypes{DType::kF32,    DType::kBF16,  DType::kF16,   DType::kF64,  DType::kQ8_0,
                                     DType::kQ4_0,   DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1, DType::kQ4_K,
                                     DType::kQ5_K,   DType::kQ6_K,  DType::kQ2_K,  DType::kQ3_K, DType::kIQ4_NL,
                                     DType::kIQ4_XS, DType::kTQ1_0, DType::kTQ2_0, DType::kMXFP4};
  return kTypes;
}

bool can_dequantise(DType type) {
  const auto types = stored_types();
  return std::find(types.begin(), types.end(), type) != types.end();
}

void dequantise_row(DType type, const std::byte* row, int64_t elements, float* out) {
  switch (type) {
    case DType::kF32: std::memcpy(out, row, static_cast<size_t>(elements) * sizeof(float)); return;
    case DType::kF16: return each_element<uint16_t>(row, elements, out, [](uint16_t x) { return to_float(Float16{x}); });
    case DType::kBF16: return each_element<uint16_t>(row, elements, out, [](uint16_t x) { return to_float(BFloat16{x}); });
    case DType::kF64: return each_element<double>(row, elements, out, [](double x) { return static_cast<float>(x); });
    case DType::kQ8_0: return each_block<kBlock>(type, row, elements, out, block_q8_0);
    case DType::kQ4_0: return each_block<kBlock>(type, row, elements, out, block_q4_0);
    case DType::kQ4_1: return each_block<kBlock>(type, row, elements, out, block_q4_1);
    case DType::kQ5_0: return each_block<kBlock>(type, row, elements, out, block_q5_0);
    case DType::kQ5_1: return each_block<kBlock>(type, row, elements, out, block_q5_1);
    case DType::kQ4_K: return each_block<kSuperBlock>(type, row, elements, out, block_q4_k);
    case DType::kQ5_K: return each_block<kSuperBlock>(type, row, elements, out, block_q5_k);
    case DType::kQ6_K: return each_block<kSuperBlock>(type, row, elements, out, block_q6_k);
    case DType::kQ2_K: return each_block<kSuperBlock>(type, row, elements, out, block_q2_k);
    case DType::kQ3_K: return each_block<kSuperBlock>(type, row, elements, out, block_q3_k);
    case DType::kIQ4_NL: return each_block<kBlock>(type, row, elements, out, block_iq4_nl);
    case DType::kIQ4_XS: return each_block<kSuperBlock>(type, row, elements, out, block_iq4_xs);
    case DType::kTQ1_0: return each_block<kSuperBlock>(type, row, elements, out, block_tq1_0);
    case DType::kTQ2_0: return each_block<kSuperBlock>(type, row, elements, out, block_tq2_0);
    case DType::kMXFP4: return each_block<kBlock>(type, row, elements, out, block_mxfp4);
    default: CHORAL_CHECK(false, "a type that cannot be dequantised; ask can_dequantise first");
  }
}

}  // namespace choral::kernels
