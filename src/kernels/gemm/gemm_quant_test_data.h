// Inputs of the quantised kernels' tests and benches, made in code: valid GGUF blocks of any type with random integers,
// and rows of x. Seeds make them the same in every run.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "tensor/view.h"

namespace choral::kernels {

inline constexpr std::array kQuantTypes{DType::kQ8_0,   DType::kQ4_0,   DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1,
                                        DType::kQ4_K,   DType::kQ5_K,   DType::kQ6_K,  DType::kQ2_K,  DType::kQ3_K,
                                        DType::kIQ4_NL, DType::kIQ4_XS, DType::kTQ1_0, DType::kTQ2_0, DType::kMXFP4};

// Where the fp16 fields of a block stand: d, and d's partner (m, dmin) or -1. MXFP4 has none.
struct HalfOffsets {
  int d, m;
};
inline HalfOffsets half_offsets(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ6_K: return {208, -1};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108, -1};
    case DType::kTQ1_0: return {52, -1};
    case DType::kTQ2_0: return {64, -1};
    case DType::kMXFP4: return {-1, -1};
    default: return {0, -1};
  }
}

struct QuantMatrixData {
  DType type;
  int64_t n, k;
  std::vector<std::byte> bytes;

  TensorView view() const { return {bytes.data(), type, Shape{n, k}, kCpuDevice}; }
};

// Of a unit of d: the largest weight.
inline float quant_reach(DType type) {
  switch (type) {
    case DType::kQ8_0:
    case DType::kIQ4_NL: return 127.0f;
    case DType::kQ6_K: return 32.0f * 127;
    case DType::kQ2_K: return 4.0f * 15;
    case DType::kQ3_K: return 4.0f * 32;
    case DType::kIQ4_XS: return 127.0f * 32;
    case DType::kTQ1_0:
    case DType::kTQ2_0: return 2.0f;
    default: return facts(type).block_elements == 256 ? 16.0f * 63 : 16.0f;
  }
}

// Sets the scales of a block to d and m, MXFP4's to 2^power.
inline void set_block_scales(DType type, std::byte* block, float d, float m, int power) {
  const HalfOffsets at = half_offsets(type);
  const auto put = [&](int offset, float value) {
    const uint16_t bits = to_float16(value).bits;
    std::memcpy(block + offset, &bits, 2);
  };
  if (at.d >= 0) put(at.d, d);
  if (at.m >= 0) put(at.m, m);
  if (type == DType::kMXFP4) block[0] = static_cast<std::byte>(128 + power);  // of twice the numbers
}

// Random bytes with scales that make weights of about `size`.
inline QuantMatrixData random_quant_matrix(DType type, int64_t n, int64_t k, uint32_t seed, float size = 0.05f) {
  const DTypeFacts& f = facts(type);
  QuantMatrixData out{type, n, k, std::vector<std::byte>(n * row_bytes(f, k))};
  std::mt19937_64 random(seed);
  size_t i = 0;
  for (; i + 8 <= out.bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(out.bytes.data() + i, &word, 8);
  }
  for (; i < out.bytes.size(); ++i) out.bytes[i] = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> factor(0.5f, 1.0f);
  const bool k_type = f.block_elements == 256;
  const float unit = size / quant_reach(type), m_of_d = type == DType::kQ2_K ? 1.5f : k_type ? 8.0f : -8.0f;
  for (size_t b = 0; b < out.bytes.size(); b += f.block_bytes) {
    const float d = unit * factor(random) * (random() % 2 == 0 ? 1.0f : -1.0f);
    const bool has_m = half_offsets(type).m >= 0;  // or else no number is drawn for it
    const float m = has_m ? m_of_d * unit * factor(random) : 0.0f;
    const int power = type == DType::kMXFP4 ? std::ilogb(size / 12.0f) - static_cast<int>(random() % 2) : 0;
    set_block_scales(type, out.bytes.data() + b, d, m, power);
  }
  return out;
}

inline std::vector<float> gaussian(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(random);
  return out;
}

}  // namespace choral::kernels
