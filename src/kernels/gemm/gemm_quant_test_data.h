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

inline constexpr std::array kQuantTypes{DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                        DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Where the fp16 fields of a block stand: d, and d's partner (m, dmin) or -1.
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
    default: return {0, -1};
  }
}

struct QuantMatrixData {
  DType type;
  int64_t n, k;
  std::vector<std::byte> bytes;

  TensorView view() const { return {bytes.data(), type, Shape{n, k}, kCpuDevice}; }
};

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
  const float unit = size / (type == DType::kQ8_0 ? 127.0f : type == DType::kQ6_K ? 32.0f * 127 : k_type ? 16.0f * 63 : 16.0f);
  const HalfOffsets at = half_offsets(type);
  for (size_t b = 0; b < out.bytes.size(); b += f.block_bytes) {
    const auto put = [&](int offset, float value) {
      const uint16_t bits = to_float16(value).bits;
      std::memcpy(out.bytes.data() + b + offset, &bits, 2);
    };
    put(at.d, unit * factor(random) * (random() % 2 == 0 ? 1.0f : -1.0f));
    if (at.m >= 0) put(at.m, (k_type ? 8.0f * unit : -8.0f * unit) * factor(random));
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
