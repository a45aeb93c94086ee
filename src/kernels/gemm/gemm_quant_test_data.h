// Inputs of the quantised kernels' tests and benches, made in code: valid GGUF blocks of any type with random integers,
// and rows of x. Seeds make them the same in every run.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/quant/block_scales.h"
#include "tensor/view.h"

namespace choral::kernels {

inline constexpr std::array kQuantTypes{
    DType::kQ8_0,  DType::kQ4_0,    DType::kQ4_1,   DType::kQ5_0,   DType::kQ5_1,    DType::kQ4_K,  DType::kQ5_K,  DType::kQ6_K,
    DType::kQ2_K,  DType::kQ3_K,    DType::kIQ4_NL, DType::kIQ4_XS, DType::kTQ1_0,   DType::kTQ2_0, DType::kMXFP4, DType::kIQ1_S,
    DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,  DType::kIQ3_XXS, DType::kIQ3_S};

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
  // The middle of the integers is about 0 then.
  const float m_of_d = type == DType::kQ2_K ? 1.5f : f.block_elements == 256 ? 8.0f : -8.0f;
  const float unit = size / block_reach(type);
  for (size_t b = 0; b < out.bytes.size(); b += f.block_bytes) {
    const float d = unit * factor(random) * (random() % 2 == 0 ? 1.0f : -1.0f);
    set_block_scales(type, out.bytes.data() + b, d, m_of_d * unit * factor(random));
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
