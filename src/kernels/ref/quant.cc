#include "kernels/ref/quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/float16.h"

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

// Scales per block of 32.
int sub_blocks(DType type) { return type == DType::kQ6_K ? 2 : 1; }
bool has_min(DType type) { return type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K || type == DType::kQ5_K; }

}  // namespace

void quantise_row(const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  const int64_t of_scale = options.planes == Planes::kOneScale ? k : 32;
  float scale = 0.0f;
  for (int64_t b = 0; b < k / 32; ++b, x += 32) {
    if (b * 32 % of_scale == 0) {
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
    for (int i = 0; i < 32; ++i) {
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
    if (has_min(type)) acc = std::fma(quant_element(type, row, first).min, x[b].sum, acc);
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
