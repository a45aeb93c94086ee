// Inputs of the int8 product's tests and bench, made in code. Seeds make them the same in every run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "base/checked_math.h"
#include "kernels/gemm/int8/gemm_int8.h"
#include "kernels/ref/int8_gemm.h"

namespace choral::kernels {

// What a matrix of integers is filled with: the ends of int8 show sums that saturate or wrap.
enum class Int8Fill { kRandom, kLeast, kLargest, kAlternating };
inline constexpr Int8Fill kInt8Fills[] = {Int8Fill::kRandom, Int8Fill::kLeast, Int8Fill::kLargest, Int8Fill::kAlternating};

inline std::vector<int8_t> int8_values(int64_t count, Int8Fill fill, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int8_t> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    const bool least = fill == Int8Fill::kLeast || (fill == Int8Fill::kAlternating && i % 2 == 0);
    out[i] = fill == Int8Fill::kRandom ? static_cast<int8_t>(random()) : least ? int8_t{-128} : int8_t{127};
  }
  return out;
}

// A weight as a checkpoint has it.
struct Int8MatrixData {
  int64_t n, k, group_size;
  std::vector<int8_t> w;
  std::vector<float> scales;  // [n, groups]

  int64_t groups() const { return group_size == 0 ? 1 : ceil_div(k, group_size); }
  WeightRows rows() const { return {{reinterpret_cast<const std::byte*>(w.data()), DType::kI8, Shape{n, k}, kCpuDevice}, {}}; }
  Int8Part part() const { return {rows(), scales}; }
};

inline Int8MatrixData int8_matrix(int64_t n, int64_t k, int64_t group_size, Int8Fill fill, uint32_t seed) {
  Int8MatrixData out{n, k, group_size, int8_values(n * k, fill, seed), {}};
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> scale(0.001f, 0.01f);
  for (int64_t i = 0; i < n * out.groups(); ++i) out.scales.push_back(scale(random));
  return out;
}

// The first `m` of the rows as `w` takes them.
inline QuantisedRows int8_rows_for(const PackedMatrix& w, CpuLevel level, std::span<const int8_t> q,
                                   std::span<const float> scales, int64_t m, Arena& arena) {
  const QuantisedRows rows(arena, *w.quantised_input(level), m, w.k());
  std::copy_n(q.begin(), m * w.k(), rows.q().data);
  std::copy_n(scales.begin(), m, rows.scale().begin());
  return rows;
}

}  // namespace choral::kernels
