// What tests of packed matrices do alike, whatever the weights are: products, bits, and the promises that every matrix of
// integers keeps (packed_matrix.h): a row is independent of its company, hooks see each element once, nothing beside a view is
// written, scratch is given back; and what packing refuses of any part.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/ref/quant.h"

namespace choral::kernels {

using PackedResult = Result<std::unique_ptr<PackedMatrix>>;

inline std::unique_ptr<PackedMatrix> packed_or_die(PackedResult packed) {
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return std::move(*packed);
}
inline std::string refusal(const PackedResult& packed) {
  EXPECT_FALSE(packed.ok());
  return packed.ok() ? std::string() : packed.status().message();
}

inline std::vector<float> multiply(const PackedMatrix& w, CpuLevel level, std::span<const float> x, int64_t m,
                                   const Epilogue& epilogue = {}, int threads = 1, float old = -7.0f) {
  ThreadPool pool(threads);
  Arena scratch;
  std::vector<float> y(static_cast<size_t>(m * w.n()), old);
  w.multiply({pool, level, scratch}, {x.data(), m, w.k()}, epilogue, {y.data(), m, w.n()});
  return y;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
inline std::span<const float> rows_of(std::span<const float> y, int64_t first, int64_t count, int64_t n) {
  return y.subspan(static_cast<size_t>(first * n), static_cast<size_t>(count * n));
}

// Every level that has a form of its own for integers, and the highest.
inline std::vector<CpuLevel> integer_levels() {
  auto out = usable_cpu_levels();
  const CpuLevel highest = out.back();
  std::erase_if(out, [&](CpuLevel level) { return level > CpuLevel::kVnni && level != highest; });
  return out;
}

// A row of x as it is multiplied, by the oracle's own steps: coarse and, of two planes, what it leaves over.
inline std::vector<std::vector<QuantisedBlock>> planes_of(const float* x, int64_t k, Planes kind = Planes::kTwo) {
  std::vector<std::vector<QuantisedBlock>> planes(plane_count(kind),
                                                  std::vector<QuantisedBlock>(static_cast<size_t>(plane_blocks(k))));
  ref::quantise_row(x, k, {.planes = kind}, planes[0].data());
  if (kind != Planes::kTwo) return planes;
  std::vector<float> rest;
  for (int64_t i = 0; i < k; ++i) {
    const auto& block = planes[0][static_cast<size_t>(i / 32)];
    rest.push_back(x[i] - block.scale * static_cast<float>(block.q[i % 32]));
  }
  ref::quantise_row(rest.data(), k, {}, planes[1].data());
  return planes;
}

// Five rows of integers at their ends, which int8 holds as they are.
inline std::vector<float> extreme_rows(int64_t k) {
  std::vector<float> x;
  for (const auto& value :
       {+[](int64_t) { return 127.0f; }, +[](int64_t) { return -127.0f; },
        +[](int64_t i) { return i % 2 == 0 ? 127.0f : -127.0f; }, +[](int64_t i) { return i % 3 == 0 ? -127.0f : 126.0f; },
        +[](int64_t i) { return i % 4 < 2 ? 127.0f : -127.0f; }}) {
    for (int64_t i = 0; i < k; ++i) x.push_back(value(i));
  }
  return x;
}

// Invariant 1: a row's bits depend neither on its batch, its place, nor on threads. `rows`: more than one pass takes.
inline void expect_rows_are_independent(const PackedMatrix& w, int64_t rows) {
  const int64_t k = w.k(), n = w.n();
  const auto x = gaussian(rows * k, 8);
  for (const CpuLevel level : integer_levels()) {
    if (level == CpuLevel::kBase) continue;  // equal to the oracle elsewhere, and slow here
    const auto all = multiply(w, level, x, rows, {}, 2);
    EXPECT_TRUE(same_bits(all, multiply(w, level, x, rows, {}, 1)));
    EXPECT_TRUE(same_bits(all, multiply(w, level, x, rows, {}, 5)));
    for (int64_t i = 0; i < rows; i += 7) {
      ASSERT_TRUE(same_bits(multiply(w, level, rows_of(x, i, 1, k), 1), rows_of(all, i, 1, n))) << i;
    }
    for (int64_t m = 2; m <= 97; m += m < 70 ? 1 : 27) {
      ASSERT_TRUE(same_bits(multiply(w, level, x, m, {}, 1 + static_cast<int>(m % 2)), rows_of(all, 0, m, n))) << m;
    }
  }
}

inline void expect_non_finite_x_stays_in_its_row(const PackedMatrix& w) {
  const int64_t k = w.k(), n = w.n();
  for (const CpuLevel level : integer_levels()) {
    for (const int64_t m : {3, 7, 9}) {
      const auto good = gaussian(m * k, 21);
      const auto expected = multiply(w, level, good, m);
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
        auto x = good;
        x[static_cast<size_t>(k + 77)] = bad;
        const auto y = multiply(w, level, x, m);
        for (int64_t j = 0; j < n; ++j) EXPECT_TRUE(std::isnan(y[static_cast<size_t>(n + j)]));
        EXPECT_TRUE(same_bits(rows_of(y, 0, 1, n), rows_of(expected, 0, 1, n)));
        EXPECT_TRUE(same_bits(rows_of(y, 2, m - 2, n), rows_of(expected, 2, m - 2, n)));
      }
    }
  }
}

// y = product + hook + bias + old y + hook, rounded after each; the hooks see every element once, the first the bare product.
inline void expect_epilogue(const PackedMatrix& w, std::initializer_list<int64_t> rows) {
  const int64_t k = w.k(), n = w.n();
  const auto bias = gaussian(n, 22);
  for (const int64_t m : rows) {
    const auto x = gaussian(m * k, 21);
    const auto plain = multiply(w, cpu_level(), x, m);
    std::vector<int> seen(static_cast<size_t>(m * n));
    std::vector<float> before(static_cast<size_t>(m * n));
    const auto add = [&](int64_t row, int64_t col, MatrixView<float> tile) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        for (int64_t j = 0; j < tile.cols; ++j) {
          const auto at = static_cast<size_t>((row + i) * n + col + j);
          ++seen[at];
          before[at] = tile.row(i)[j];
          tile.row(i)[j] += 0.1f * static_cast<float>(at);
        }
      }
    };
    const auto scale = [&](int64_t row, int64_t col, MatrixView<float> tile) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        for (int64_t j = 0; j < tile.cols; ++j) tile.row(i)[j] *= 1.0f + static_cast<float>((row + i) * n + col + j);
      }
    };
    const Epilogue::Hook hook(add), result_hook(scale);
    Epilogue epilogue{.bias = bias.data(), .product_hook = &hook, .accumulate = true};
    const auto y = multiply(w, cpu_level(), x, m, epilogue, 2, 3.3f);
    EXPECT_THAT(seen, ::testing::Each(1));
    EXPECT_TRUE(same_bits(before, plain));
    epilogue.result_hook = &result_hook;
    const auto scaled = multiply(w, cpu_level(), x, m, epilogue, 2, 3.3f);
    for (size_t at = 0; at < y.size(); ++at) {
      ASSERT_EQ(y[at], (plain[at] + 0.1f * static_cast<float>(at) + bias[at % static_cast<size_t>(n)]) + 3.3f);
      ASSERT_EQ(scaled[at], y[at] * (1.0f + static_cast<float>(at)));
    }
  }
}

// `rows`: taken directly, in tiles, in more than one pass.
inline void expect_rows_quantised_before_give_the_same_bits(const PackedMatrix& w, std::initializer_list<int64_t> rows) {
  const int64_t k = w.k(), n = w.n();
  const auto bias = gaussian(n, 4);
  const Epilogue epilogue{.bias = bias.data(), .accumulate = true};
  for (const CpuLevel level : integer_levels()) {
    const auto form = w.quantised_input(level);
    ASSERT_TRUE(form.has_value());
    for (const int64_t m : rows) {
      const auto x = gaussian(m * k, 5);
      ThreadPool pool(2);
      Arena scratch;
      const QuantisedRows quantised(scratch, *form, m, k);
      quantise_rows({pool, level, scratch}, {x.data(), m, k}, quantised);
      std::vector<float> y(static_cast<size_t>(m * n), -7.0f);
      w.multiply_quantised({pool, level, scratch}, quantised, epilogue, {y.data(), m, n});
      EXPECT_TRUE(same_bits(y, multiply(w, level, x, m, epilogue))) << cpu_level_name(level) << ", " << m << " rows";
    }
  }
}

inline void expect_views_are_kept(const PackedMatrix& w) {
  const int64_t k = w.k(), n = w.n(), x_stride = k + 5, y_stride = n + 12;
  ThreadPool pool(1);
  Arena scratch;
  for (const int64_t m : {2, 5, 9}) {
    const auto x = gaussian(m * x_stride, 82);
    std::vector<float> packed_x;
    for (int64_t i = 0; i < m; ++i) packed_x.insert(packed_x.end(), x.begin() + i * x_stride, x.begin() + i * x_stride + k);
    for (const CpuLevel level : integer_levels()) {
      const auto expected = multiply(w, level, packed_x, m);
      std::vector<float> y(static_cast<size_t>(m * y_stride), 5.0f);
      w.multiply({pool, level, scratch}, {x.data(), m, k, x_stride}, {}, {y.data(), m, n, y_stride});
      for (int64_t i = 0; i < m; ++i) {
        EXPECT_TRUE(same_bits(std::span(y).subspan(static_cast<size_t>(i * y_stride), n), rows_of(expected, i, 1, n)));
        for (int64_t j = n; j < y_stride; ++j) EXPECT_EQ(y[static_cast<size_t>(i * y_stride + j)], 5.0f);
      }
    }
  }
}

inline void expect_scratch_is_given_back(const PackedMatrix& w) {
  constexpr int64_t kRows = 33;
  const auto x = gaussian(kRows * w.k(), 84);
  ThreadPool pool(2);
  Arena scratch;
  std::vector<float> y(static_cast<size_t>(kRows * w.n()));
  const auto run = [&] { w.multiply({pool, cpu_level(), scratch}, {x.data(), kRows, w.k()}, {}, {y.data(), kRows, w.n()}); };
  const void* start = scratch.allocate(64);
  scratch.reset();
  for (int i = 0; i < 3; ++i) run();
  const int64_t grown = scratch.grown();
  run();
  EXPECT_EQ(scratch.grown(), grown);
  EXPECT_EQ(scratch.allocate(64), start);
}

// Of y = x·Wᵀ against the same in double, x of m random rows; W's row j as float is row_of(j).
template <class RowOf>
double relative_error(const PackedMatrix& w, int64_t m, RowOf row_of) {
  const int64_t k = w.k();
  const auto x = gaussian(m * k, 19);
  const auto y = multiply(w, cpu_level(), x, m);
  double error = 0, size = 0;
  for (int64_t j = 0; j < w.n(); ++j) {
    const std::vector<float> row = row_of(j);
    for (int64_t i = 0; i < m; ++i) {
      double exact = 0;
      for (int64_t c = 0; c < k; ++c)
        exact += static_cast<double>(row[static_cast<size_t>(c)]) * x[static_cast<size_t>(i * k + c)];
      const double difference = y[static_cast<size_t>(i * w.n() + j)] - exact;
      error += difference * difference;
      size += exact * exact;
    }
  }
  return std::sqrt(error / size);
}

// Three parts of one matrix: `a` of 24 rows in reverse, `b` of 7, and some of b's rows once more.
struct StackedParts {
  static constexpr int64_t kRowsOfA = 24, kRowsOfB = 7, kRows = 34;
  std::vector<int32_t> reversed = std::vector<int32_t>(kRowsOfA), some{5, 5, 0};
  StackedParts() { std::iota(reversed.rbegin(), reversed.rend(), 0); }

  template <class Part>
  std::vector<Part> parts(Part a, const Part& b) const {
    Part chosen = b;
    a.rows.order = reversed;
    chosen.rows.order = some;
    return {a, b, chosen};
  }
  bool of_a(int64_t row) const { return row < kRowsOfA; }
  int64_t source(int64_t row) const {  // row of a or of b
    return of_a(row) ? reversed[row] : row < kRowsOfA + kRowsOfB ? row - kRowsOfA : some[row - kRowsOfA - kRowsOfB];
  }
};

// `good` is a part of [4, 64], `wide` one of [4, 96]; error(parts) is what is said of them, `kind` "an int8 weight".
template <class Part, class Error>
void expect_wrong_parts_are_refused(const Part& good, const Part& wide, std::string_view kind, Error error) {
  using ::testing::HasSubstr;
  EXPECT_THAT(error({}), HasSubstr("at least one part"));
  EXPECT_THAT(error({good, wide}), HasSubstr("part 1 has k = 96 but part 0 has 64"));
  Part bad = good;
  bad.rows.tensor.dtype = DType::kF8E5M2;
  EXPECT_THAT(error({good, bad}), HasSubstr(fmt::format("part 1 of {} is float8_e5m2", kind)));
  bad = good;
  bad.rows.tensor.shape = Shape{0, 64};
  EXPECT_THAT(error({bad}), HasSubstr(fmt::format("part 0 of {} has shape [0, 64]", kind)));
  bad.rows.tensor.shape = Shape{4};
  EXPECT_THAT(error({bad}), HasSubstr("[rows, k]"));
  bad = good;
  bad.rows.tensor.data = nullptr;
  EXPECT_THAT(error({bad}), HasSubstr("host memory"));
  bad = good;
  const std::vector<int32_t> beyond{4}, below{-1};
  bad.rows.order = beyond;
  EXPECT_THAT(error({good, bad}), HasSubstr("part 1's row order names row 4, but the tensor has 4 rows"));
  bad.rows.order = below;
  EXPECT_THAT(error({bad}), HasSubstr("row -1"));
  bad = good;
  bad.scales = bad.scales.first(3);
  EXPECT_THAT(error({good, bad}), HasSubstr("part 1 has 3 scales; 4 rows with 1 each need 4"));
  std::vector<float> scales(good.scales.begin(), good.scales.end());
  for (const float scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    scales[2] = scale;
    bad.scales = scales;
    EXPECT_THAT(error({good, bad}), HasSubstr(fmt::format("part 1 has a scale of {} for row 2", scale)));
  }
}

}  // namespace choral::kernels
