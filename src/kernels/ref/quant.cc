#include "kernels/ref/quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/quant/code_grids.h"

namespace choral::kernels::ref {
namespace {

float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return to_float(Float16{bits});
}

int nibble(const uint8_t* bytes, int64_t j) { return j < 16 ? bytes[j] % 16 : bytes[j - 16] / 16; }
int bit(const uint8_t* bytes, int64_t j) { return bytes[j / 8] >> j % 8 & 1; }

// Pair j of the 12 bytes of six-bit (scale, min) pairs, from the format's definition.
int six_bit_scale(const uint8_t* b, int64_t j) { return j < 4 ? b[j] & 63 : (b[j + 4] & 15) + ((b[j - 4] >> 6) << 4); }
int six_bit_min(const uint8_t* b, int64_t j) { return j < 4 ? b[j + 4] & 63 : (b[j + 4] >> 4) + ((b[j] >> 6) << 4); }

QuantElement k_element(DType type, const uint8_t* p, int64_t i) {
  const int64_t block = i / 32, l = i % 32;
  if (type == DType::kQ6_K) {
    const int64_t half = i / 128, row = i % 128 / 32;
    const uint8_t low = p[64 * half + 32 * (row % 2) + l];
    const int upper = p[128 + 32 * half + l] >> (2 * row) & 3;
    const auto scale = static_cast<int8_t>(p[192 + i / 16]);
    return {(row < 2 ? low % 16 : low / 16) + 16 * upper - 32, half_at(p + 208) * static_cast<float>(scale), 0.0f};
  }
  const float scale = half_at(p) * static_cast<float>(six_bit_scale(p + 4, block));
  const float min = -half_at(p + 2) * static_cast<float>(six_bit_min(p + 4, block));
  const uint8_t byte = p[(type == DType::kQ4_K ? 16 : 48) + i / 64 * 32 + l];
  const int low = block % 2 == 0 ? byte % 16 : byte / 16;
  return {type == DType::kQ4_K ? low : low + 16 * (p[16 + l] >> block & 1), scale, min};
}

constexpr int kIQ4Values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

int pair_of_bits(const uint8_t* bytes, int64_t i) { return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

// Digit d after the point of b / 256 to base 3.
int ternary_digit(int b, int64_t d) {
  for (; d >= 0; --d) b *= 3;
  return b / 256 % 3;
}
int ternary(const uint8_t* p, int64_t i) {
  if (i < 160) return ternary_digit(p[i % 32], i / 32);
  if (i < 240) return ternary_digit(p[32 + i % 16], (i - 160) / 16);
  return ternary_digit(p[48 + i % 4], (i - 240) / 4);
}

QuantElement few_bits_element(DType type, const uint8_t* p, int64_t i) {
  const int64_t sixteen = i / 16, block = i / 32, l = i % 32;
  switch (type) {
    case DType::kQ2_K:
      return {pair_of_bits(p + 16, i), half_at(p + 80) * static_cast<float>(p[sixteen] % 16),
              -half_at(p + 82) * static_cast<float>(p[sixteen] / 16)};
    case DType::kQ3_K: {
      const uint8_t* scales = p + 96;
      const int scale = (sixteen < 8 ? scales[sixteen] % 16 : scales[sixteen - 8] / 16) +
                        16 * (scales[8 + sixteen % 4] >> (sixteen / 4 * 2) & 3) - 32;
      const int third = p[l] >> block & 1;
      return {pair_of_bits(p + 32, i) + 4 * third - 4, half_at(p + 108) * static_cast<float>(scale), 0.0f};
    }
    case DType::kIQ4_XS: {
      const int low = block % 2 == 0 ? p[4 + block / 2] % 16 : p[4 + block / 2] / 16;
      const int high = (p[2] + 256 * p[3]) >> (2 * block) & 3;
      return {kIQ4Values[nibble(p + 8 + 16 * block, l)], half_at(p) * static_cast<float>(low + 16 * high - 32), 0.0f};
    }
    case DType::kTQ1_0: return {ternary(p, i) - 1, half_at(p + 52), 0.0f};
    case DType::kTQ2_0: return {pair_of_bits(p, i) - 1, half_at(p + 64), 0.0f};
    default: break;
  }
  constexpr int kTwiceE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12};
  const int code = nibble(p + 1, i);
  return {code < 8 ? kTwiceE2M1[code] : -kTwiceE2M1[code - 8], std::ldexp(1.0f, p[0] - 128), 0.0f};
}

uint32_t word(const uint8_t* p) { return p[0] + 256u * p[1] + 65536u * p[2] + 16777216u * p[3]; }
int packed_nibble(const uint8_t* bytes, int64_t j) { return j % 2 == 0 ? bytes[j / 2] % 16 : bytes[j / 2] / 16; }

// Sign `i` of eight, of which seven are stored: an odd number of them makes the eighth negative.
bool is_negative(uint32_t seven, int64_t i) {
  int count = 0;
  for (int j = 0; j < 7; ++j) count += static_cast<int>(seven >> j & 1);
  return i == 7 ? count % 2 == 1 : (seven >> i & 1) == 1;
}

// Of IQ1: eight digits -1, 0, 1 and an eighth, up or down, all of it times eight.
QuantElement iq1_element(DType type, const uint8_t* p, int64_t i) {
  const int64_t block = i / 32, eight = i / 8;
  int index = 0, scale = 0;
  bool down = false;
  float d = 0;
  if (type == DType::kIQ1_S) {
    const int upper = p[34 + 2 * block] + 256 * p[35 + 2 * block];
    index = p[2 + eight] + 256 * (upper >> 3 * (eight % 4) & 7);
    scale = upper >> 12 & 7;
    down = upper >= 32768;
    d = half_at(p);
  } else {
    const int upper = packed_nibble(p + 32, eight);
    index = p[eight] + 256 * (upper % 8);
    down = upper >= 8;
    const uint8_t* scales = p + 48;
    const int64_t sixteen = i / 16;
    scale = (scales[sixteen / 4 * 2] + 256 * scales[sixteen / 4 * 2 + 1]) >> 3 * (sixteen % 4) & 7;
    const uint16_t bits =
        static_cast<uint16_t>(scales[1] / 16 + scales[3] / 16 * 16 + scales[5] / 16 * 256 + scales[7] / 16 * 4096);
    d = to_float(Float16{bits});
  }
  const int digit = grid_points(type)[8 * index + i % 8];
  return {8 * (digit - 1) + (down ? -1 : 1), d * 0.125f * static_cast<float>(2 * scale + 1), 0.0f};
}

QuantElement iq2_element(DType type, const uint8_t* p, int64_t i) {
  constexpr int kValues[] = {8, 25, 43};
  const int64_t block = i / 32, eight = i / 8;
  int index = 0, scale = 0;
  bool negative = false;
  if (type == DType::kIQ2_XXS) {
    const uint32_t signs = word(p + 2 + 8 * block + 4);
    index = p[2 + 8 * block + eight % 4];
    scale = static_cast<int>(signs / 268435456);
    negative = is_negative(signs >> 7 * (eight % 4) & 127, i % 8);
  } else if (type == DType::kIQ2_XS) {
    const int both = p[2 + 2 * eight] + 256 * p[3 + 2 * eight];
    index = both % 512;
    negative = is_negative(static_cast<uint32_t>(both / 512), i % 8);
    scale = packed_nibble(p + 66, i / 16);
  } else {
    index = p[2 + eight] + 256 * (p[66 + eight / 4] >> 2 * (eight % 4) & 3);
    negative = bit(p + 34, i) == 1;
    scale = packed_nibble(p + 74, i / 16);
  }
  const int value = kValues[grid_points(type)[8 * index + i % 8]];
  return {negative ? -value : value, half_at(p) * 0.125f * static_cast<float>(2 * scale + 1), 0.0f};
}

QuantElement iq3_element(DType type, const uint8_t* p, int64_t i) {
  constexpr int kValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
  const int64_t block = i / 32, four = i / 4;
  if (type == DType::kIQ3_XXS) {
    const uint32_t signs = word(p + 66 + 4 * block);
    const int value = kValues[grid_points(type)[4 * p[2 + four] + i % 4]];
    const bool negative = is_negative(signs >> 7 * (i % 32 / 8) & 127, i % 8);
    return {negative ? -value : value, half_at(p) * 0.25f * static_cast<float>(2 * (signs / 268435456) + 1), 0.0f};
  }
  const int index = p[2 + four] + 256 * bit(p + 66, four);
  const int value = 2 * grid_points(type)[4 * index + i % 4] + 1;
  return {bit(p + 74, i) == 1 ? -value : value, half_at(p) * static_cast<float>(2 * packed_nibble(p + 106, block) + 1), 0.0f};
}

// Scales per block of 32.
int sub_blocks(DType type) {
  switch (type) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ6_K:
    case DType::kIQ1_M:
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return 2;
    default: return 1;
  }
}
bool has_min(DType type) {
  return type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ2_K || type == DType::kQ4_K || type == DType::kQ5_K;
}

}  // namespace

void quantise_row(const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  float scale = 0.0f;
  for (int64_t b = 0; b < plane_blocks(k); ++b, x += 32) {
    const int64_t count = std::min<int64_t>(32, k - b * 32);
    if (b == 0 || options.planes != Planes::kOneScale) {
      const int64_t of_scale = options.planes == Planes::kOneScale ? k : count;
      float largest = 0.0f;
      bool finite = true;
      for (int64_t i = 0; i < of_scale; ++i) {
        finite = finite && std::isfinite(x[i]);
        largest = std::max(largest, std::fabs(x[i]));
      }
      scale = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
    }
    QuantisedBlock& block = out[b];
    block = QuantisedBlock{};
    block.scale = block.sum = scale;
    if (!(block.scale > 0.0f)) continue;
    int32_t sum[2] = {0, 0};
    for (int64_t i = 0; i < count; ++i) {
      block.q[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x[i] / block.scale), -127.0f, 127.0f));
      sum[i / 16] += block.q[i];
    }
    block.start[0] = -options.zero * (options.halves ? sum[0] : sum[0] + sum[1]);
    block.start[1] = options.halves ? -options.zero * sum[1] : 0;
    block.sum = block.scale * static_cast<float>(sum[0] + sum[1]);
  }
}

QuantElement quant_element(DType type, const std::byte* row, int64_t i) {
  const DTypeFacts& f = facts(type);
  const auto* p = reinterpret_cast<const uint8_t*>(row) + i / f.block_elements * f.block_bytes;
  i %= f.block_elements;
  switch (type) {
    case DType::kQ8_0: return {static_cast<int8_t>(p[2 + i]), half_at(p), 0.0f};
    case DType::kQ4_0: return {nibble(p + 2, i) - 8, half_at(p), 0.0f};
    case DType::kQ4_1: return {nibble(p + 4, i), half_at(p), half_at(p + 2)};
    case DType::kQ5_0: return {nibble(p + 6, i) + 16 * bit(p + 2, i) - 16, half_at(p), 0.0f};
    case DType::kQ5_1: return {nibble(p + 8, i) + 16 * bit(p + 4, i), half_at(p), half_at(p + 2)};
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K: return k_element(type, p, i);
    case DType::kIQ4_NL: return {kIQ4Values[nibble(p + 2, i)], half_at(p), 0.0f};
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_XS:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kMXFP4: return few_bits_element(type, p, i);
    case DType::kIQ1_S:
    case DType::kIQ1_M: return iq1_element(type, p, i);
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return iq2_element(type, p, i);
    case DType::kIQ3_XXS:
    case DType::kIQ3_S: return iq3_element(type, p, i);
    default: break;
  }
  CHORAL_CHECK(false, "not a block-quantised type");
}

float quantised_dot(DType type, const std::byte* row, std::span<const QuantisedBlock> x) {
  const int subs = sub_blocks(type), width = 32 / subs;
  float acc = 0.0f;
  for (size_t b = 0; b < x.size(); ++b) {
    const auto first = static_cast<int64_t>(b) * 32;
    for (int s = 0; s < subs; ++s) {
      int32_t isum = 0;
      for (int i = s * width; i < (s + 1) * width; ++i) isum += quant_element(type, row, first + i).integer * x[b].q[i];
      acc = std::fma(static_cast<float>(isum), quant_element(type, row, first + s * width).scale * x[b].scale, acc);
    }
    for (int s = 0; has_min(type) && s < subs; ++s) {
      int32_t sum = 0;
      for (int i = s * width; i < (s + 1) * width; ++i) sum += x[b].q[i];
      acc = std::fma(quant_element(type, row, first + s * width).min, x[b].scale * static_cast<float>(sum), acc);
    }
  }
  return acc;
}

DoubleDot quantised_dot_double(DType type, const std::byte* row, std::span<const QuantisedBlock> x) {
  DoubleDot out{0.0, 0.0};
  for (size_t b = 0; b < x.size(); ++b) {
    for (int i = 0; i < 32; ++i) {
      const QuantElement w = quant_element(type, row, static_cast<int64_t>(b) * 32 + i);
      const double q = static_cast<double>(x[b].q[i]) * x[b].scale;
      out.value += (w.integer * static_cast<double>(w.scale) + w.min) * q;
      out.magnitude += std::fabs(w.integer * static_cast<double>(w.scale) * q) + std::fabs(w.min * q);
    }
  }
  return out;
}

}  // namespace choral::kernels::ref
