#include "kernels/gemm/gemm_quant.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/dequantise.h"
#include "kernels/quant/quant_panels.h"
#include "kernels/ref/quant.h"

namespace choral::kernels {
namespace {

std::unique_ptr<PackedMatrix> pack(const QuantMatrixData& data, Planes planes = Planes::kTwo) {
  ThreadPool pool(1);
  const WeightRows part{data.view()};
  auto packed = pack_quantised({&part, 1}, pool, planes);
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return std::move(*packed);
}

std::vector<float> multiply(const PackedMatrix& w, CpuLevel level, const std::vector<float>& x, int64_t m,
                            const Epilogue& epilogue = {}, int threads = 1, float old = -7.0f) {
  ThreadPool pool(threads);
  Arena scratch;
  std::vector<float> y(m * w.n(), old);
  w.multiply({pool, level, scratch}, {x.data(), m, w.k()}, epilogue, {y.data(), m, w.n()});
  return y;
}

// A row of x as the GEMM sees it, by the oracle's own steps.
struct QuantisedRow {
  std::vector<QuantisedBlock> coarse, fine;
};
QuantisedRow quantise(const float* x, int64_t k) {
  QuantisedRow planes{std::vector<QuantisedBlock>(k / 32), std::vector<QuantisedBlock>(k / 32)};
  ref::quantise_row(x, k, {}, planes.coarse.data());
  std::vector<float> rest;
  for (int64_t i = 0; i < k; ++i) {
    const auto& block = planes.coarse[i / 32];
    rest.push_back(x[i] - block.scale * static_cast<float>(block.q[i % 32]));
  }
  ref::quantise_row(rest.data(), k, {}, planes.fine.data());
  return planes;
}

float planes_dot(DType type, const std::byte* row, const QuantisedRow& x) {
  return ref::quantised_dot(type, row, x.coarse) + ref::quantised_dot(type, row, x.fine);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Every level that has its own form, and the highest.
std::vector<CpuLevel> levels() {
  auto out = usable_cpu_levels();
  const CpuLevel highest = out.back();
  std::erase_if(out, [&](CpuLevel level) { return level > CpuLevel::kVnni && level != highest; });
  return out;
}

class GemmQuantTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, GemmQuantTest, testing::ValuesIn(kQuantTypes),
                         [](const auto& tested) { return std::string(dtype_name(tested.param)); });

// Panels of every fullness, tiles of every height, chunks of every length; against GGUF's bytes, without knowledge of panels.
TEST_P(GemmQuantTest, BitsEqualTheOracle) {
  const DType type = GetParam();
  for (const int64_t k : {32, 64, 96, 256, 288, 512, 1536}) {
    if (k % facts(type).block_elements != 0) continue;
    for (const int64_t n : {1, 3, 16, 17, 33, 63, 64, 65, 70, 129}) {
      if (k > 256 && n != 17 && n != 65) continue;
      const auto data = random_quant_matrix(type, n, k, static_cast<uint32_t>(n * 10000 + k));
      const auto w = pack(data);
      const auto x = gaussian(40 * k, 5);
      std::vector<float> expected;
      for (int64_t i = 0; i < 40; ++i) {
        const auto q = quantise(x.data() + i * k, k);
        for (int64_t j = 0; j < n && (n <= 33 || i < 13); ++j) {
          expected.push_back(planes_dot(type, data.view().row(j), q));
        }
      }
      for (const CpuLevel level : levels()) {
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 40}) {
          auto got = multiply(*w, level, x, m);
          got.resize(std::min(got.size(), expected.size()));
          ASSERT_TRUE(same_bits(got, {expected.begin(), expected.begin() + std::ssize(got)}))
              << cpu_level_name(level) << ", k " << k << ", n " << n << ", m " << m;
        }
      }
    }
  }
}

TEST_P(GemmQuantTest, OnePlaneIsTheCoarseOne) {
  const DType type = GetParam();
  const int64_t n = 70, k = 512;
  const auto data = random_quant_matrix(type, n, k, 15);
  const auto x = gaussian(100 * k, 16);
  for (const Planes planes : {Planes::kOne, Planes::kOneScale}) {
    const auto w = pack(data, planes);
    std::vector<float> expected;
    for (int64_t i = 0; i < 100; ++i) {
      std::vector<QuantisedBlock> row(k / 32);
      ref::quantise_row(x.data() + i * k, k, {.planes = planes}, row.data());
      for (int64_t j = 0; j < n; ++j) expected.push_back(ref::quantised_dot(type, data.view().row(j), row));
    }
    for (const CpuLevel level : levels()) {
      for (const int64_t m : {1, 2, 3, 4, 5, 9, 33, 100}) {
        ASSERT_TRUE(same_bits(multiply(*w, level, x, m), {expected.begin(), expected.begin() + m * n}))
            << cpu_level_name(level) << ", m " << m;
      }
    }
  }
}

// Invariant 1: a row's bits depend neither on its batch, its place, nor on threads. 200 rows are more than one pass.
TEST_P(GemmQuantTest, RowsAreIndependentOfBatchAndThreads) {
  const DType type = GetParam();
  const int64_t k = 768, n = 200, rows = 200;
  const auto w = pack(random_quant_matrix(type, n, k, 21));
  const auto x = gaussian(rows * k, 22);
  for (const CpuLevel level : levels()) {
    if (level == CpuLevel::kBase) continue;  // equal to the oracle above, and slow here
    const auto all = multiply(*w, level, x, rows, {}, 2);
    EXPECT_TRUE(same_bits(all, multiply(*w, level, x, rows, {}, 1)));
    for (int64_t i = 0; i < rows; i += 7) {
      const std::vector<float> one(x.begin() + i * k, x.begin() + (i + 1) * k);
      ASSERT_TRUE(same_bits(multiply(*w, level, one, 1), {all.begin() + i * n, all.begin() + (i + 1) * n})) << i;
    }
    for (int64_t m = 2; m <= 70; ++m) {
      const auto some = multiply(*w, level, x, m, {}, 1 + static_cast<int>(m % 2));
      ASSERT_TRUE(same_bits(some, {all.begin(), all.begin() + m * n})) << m;
    }
  }
}

// Integers at their ends, with scales of 1 so that y is the integer sum itself: a saturating or wrapping kernel shows at once.
TEST_P(GemmQuantTest, ExtremeIntegersAreExact) {
  const DType type = GetParam();
  const int64_t k = 512, n = 80;  // four panels, which tiles take, and one more
  for (const int pattern : {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, -1, -2}) {
    auto data = random_quant_matrix(type, n, k, 31);
    for (size_t i = 0; i < data.bytes.size(); ++i) {
      if (pattern >= 0) data.bytes[i] = static_cast<std::byte>(pattern);
      if (pattern < 0) data.bytes[i] = static_cast<std::byte>((i + static_cast<size_t>(-pattern)) % 2 == 0 ? 0x80 : 0x7F);
    }
    for (size_t b = 0; b < data.bytes.size(); b += facts(type).block_bytes) {
      set_block_scales(type, data.bytes.data() + b, 1.0f, 1.0f, 0);
    }
    std::vector<float> x;
    for (const auto& value :
         {+[](int64_t) { return 127.0f; }, +[](int64_t) { return -127.0f; },
          +[](int64_t i) { return i % 2 == 0 ? 127.0f : -127.0f; }, +[](int64_t i) { return i % 3 == 0 ? -127.0f : 126.0f; },
          +[](int64_t i) { return i % 4 < 2 ? 127.0f : -127.0f; }}) {
      for (int64_t i = 0; i < k; ++i) x.push_back(value(i));
    }
    const auto w = pack(data);
    for (const int64_t m : {1, 5}) {
      const auto y = multiply(*w, CpuLevel::kBase, x, m);
      for (const CpuLevel level : levels())
        ASSERT_TRUE(same_bits(multiply(*w, level, x, m), y)) << cpu_level_name(level) << pattern;
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t j = 0; j < n; ++j) {
          int64_t sum = 0, min_sum = 0;
          for (int64_t i = 0; i < k; ++i) {
            const auto e = ref::quant_element(type, data.view().row(j), i);
            const auto q = static_cast<int64_t>(x[r * k + i]);
            sum += e.integer * static_cast<int64_t>(e.scale) * q;
            min_sum += static_cast<int64_t>(e.min) * q;
          }
          if (std::abs(sum) + std::abs(min_sum) < (1 << 24)) {
            ASSERT_EQ(y[r * n + j], static_cast<float>(sum + min_sum)) << pattern << ", " << r;
          }
          ASSERT_EQ(y[r * n + j], planes_dot(type, data.view().row(j), quantise(x.data() + r * k, k)));
        }
      }
    }
  }
}

// |y - exact| <= K/32 · 2^-23 · sum|terms|: each of K/32 blocks rounds its scale product and its sum (a minimum adds one rounding
// more).
TEST_P(GemmQuantTest, ErrorOfTheSumIsBounded) {
  const DType type = GetParam();
  const int64_t k = 2048, n = 48, m = 6;
  const auto data = random_quant_matrix(type, n, k, 41);
  const auto x = gaussian(m * k, 42);
  const auto y = multiply(*pack(data), cpu_level(), x, m);
  for (int64_t i = 0; i < m; ++i) {
    const auto q = quantise(x.data() + i * k, k);
    for (int64_t j = 0; j < n; ++j) {
      const auto coarse = ref::quantised_dot_double(type, data.view().row(j), q.coarse);
      const auto fine = ref::quantised_dot_double(type, data.view().row(j), q.fine);
      const double bound = (k / 32 + 1) * 0x1p-23 * (coarse.magnitude + fine.magnitude);
      ASSERT_LE(std::fabs(y[i * n + j] - (coarse.value + fine.value)), bound);
    }
  }
}

// Against float x and the other decoder of the format: what 16-bit activations cost.
TEST_P(GemmQuantTest, EndToEndErrorIsSmall) {
  const DType type = GetParam();
  const int64_t k = 1536, n = 64, m = 5;
  const auto data = random_quant_matrix(type, n, k, 51);
  const auto x = gaussian(m * k, 52);
  const auto y = multiply(*pack(data), cpu_level(), x, m);
  double error = 0, size = 0;
  std::vector<float> row(k);
  for (int64_t j = 0; j < n; ++j) {
    dequantise_row(type, data.view().row(j), k, row.data());
    for (int64_t i = 0; i < m; ++i) {
      double exact = 0;
      for (int64_t c = 0; c < k; ++c) exact += static_cast<double>(row[c]) * x[i * k + c];
      const double difference = y[i * n + j] - exact;
      error += difference * difference;
      size += exact * exact;
    }
  }
  EXPECT_LT(std::sqrt(error / size), 5e-5);
}

TEST_P(GemmQuantTest, NonFiniteXStaysInItsRow) {
  const DType type = GetParam();
  const int64_t k = 512, n = 40;
  const auto w = pack(random_quant_matrix(type, n, k, 61));
  for (const CpuLevel level : levels())
    for (const int64_t m : {3, 7}) {
      const auto good = gaussian(m * k, 62);
      const auto expected = multiply(*w, level, good, m);
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        auto x = good;
        x[k + 77] = bad;
        const auto y = multiply(*w, level, x, m);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            const auto at = static_cast<size_t>(i * n + j);
            if (i == 1) {
              EXPECT_TRUE(std::isnan(y[at]));
            } else {
              EXPECT_EQ(y[at], expected[at]);
            }
          }
        }
      }
    }
}

// y = sums + hook + bias + old y + hook, rounded after each; the hooks see every element once, the first the bare sum.
TEST_P(GemmQuantTest, Epilogue) {
  const DType type = GetParam();
  const int64_t k = 256, n = 71;
  const auto w = pack(random_quant_matrix(type, n, k, 71));
  const auto x = gaussian(9 * k, 72);
  const auto bias = gaussian(n, 73);
  const CpuLevel level = cpu_level();
  for (const int64_t m : {1, 3, 9}) {
    const auto plain = multiply(*w, level, x, m);
    std::vector<int> seen(m * n);
    std::vector<float> before(m * n);
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
    const Epilogue::Hook hook(add);
    const auto y = multiply(*w, level, x, m, {.bias = bias.data(), .product_hook = &hook, .accumulate = true}, 1, 3.3f);
    EXPECT_THAT(seen, testing::Each(1));
    const auto later = [&](int64_t row, int64_t col, MatrixView<float> tile) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        for (int64_t j = 0; j < tile.cols; ++j) tile.row(i)[j] *= 1.0f + static_cast<float>((row + i) * n + col + j);
      }
    };
    const Epilogue::Hook result_hook(later);
    const auto z = multiply(
        *w, level, x, m, {.bias = bias.data(), .product_hook = &hook, .result_hook = &result_hook, .accumulate = true}, 1, 3.3f);
    for (size_t at = 0; at < y.size(); ++at) EXPECT_EQ(z[at], y[at] * (1.0f + static_cast<float>(at)));
    for (size_t at = 0; at < y.size(); ++at) {
      EXPECT_EQ(before[at], plain[at]);
      EXPECT_EQ(y[at], (plain[at] + 0.1f * static_cast<float>(at) + bias[at % static_cast<size_t>(n)]) + 3.3f);
    }
  }
}

TEST_P(GemmQuantTest, RowsQuantisedBeforeGiveTheSameBits) {
  const int64_t n = 40, k = 512;
  const auto w = pack(random_quant_matrix(GetParam(), n, k, 3));
  std::vector<float> bias = gaussian(n, 4);
  for (const CpuLevel level : levels()) {
    const auto form = w->quantised_input(level);
    ASSERT_TRUE(form.has_value());
    for (const int64_t m : {1, 2, 3, 97, 200}) {  // direct, tiled, more than one pass
      const auto x = gaussian(m * k, 5);
      ThreadPool pool(2);
      Arena scratch;
      const QuantisedRows rows(scratch, *form, m, k);
      quantise_rows({pool, level, scratch}, {x.data(), m, k}, rows);
      std::vector<float> y(static_cast<size_t>(m * n), -7.0f);
      const Epilogue epilogue{.bias = bias.data(), .accumulate = true};
      w->multiply_quantised({pool, level, scratch}, rows, epilogue, {y.data(), m, n});
      EXPECT_TRUE(same_bits(y, multiply(*w, level, x, m, epilogue))) << cpu_level_name(level) << ", " << m << " rows";
    }
  }
}

TEST(GemmQuant, StridedViewsAndNothingBesideThem) {
  const int64_t k = 96, n = 20, m = 5;
  const auto w = pack(random_quant_matrix(DType::kQ4_0, n, k, 81));
  const auto x = gaussian(m * 100, 82);
  std::vector<float> packed_x;
  for (int64_t i = 0; i < m; ++i) packed_x.insert(packed_x.end(), x.begin() + i * 100, x.begin() + i * 100 + k);
  const auto expected = multiply(*w, cpu_level(), packed_x, m);
  ThreadPool pool(1);
  Arena scratch;
  std::vector<float> y(m * 32, 5.0f);
  w->multiply({pool, cpu_level(), scratch}, {x.data(), m, k, 100}, {}, {y.data(), m, n, 32});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < 32; ++j) {
      EXPECT_EQ(y[i * 32 + j], j < n ? expected[i * n + j] : 5.0f);
    }
  }
}

TEST(GemmQuant, ScratchIsGivenBackAndDoesNotGrow) {
  const auto w = pack(random_quant_matrix(DType::kQ4_K, 64, 512, 83));
  const auto x = gaussian(33 * 512, 84);
  ThreadPool pool(2);
  Arena scratch;
  std::vector<float> y(33 * 64);
  const void* start = scratch.allocate(64);
  scratch.reset();
  for (int i = 0; i < 3; ++i) w->multiply({pool, cpu_level(), scratch}, {x.data(), 33, 512}, {}, {y.data(), 33, 64});
  const int64_t grown = scratch.grown();
  w->multiply({pool, cpu_level(), scratch}, {x.data(), 33, 512}, {}, {y.data(), 33, 64});
  EXPECT_EQ(scratch.grown(), grown);
  EXPECT_EQ(scratch.allocate(64), start);
}

TEST(GemmQuant, PartsAreStackedInTheirOrder) {
  const int64_t k = 256;
  for (const DType type : kQuantTypes) {
    const auto a = random_quant_matrix(type, 24, k, 101), b = random_quant_matrix(type, 7, k, 102);
    std::vector<int32_t> order(24);
    std::iota(order.rbegin(), order.rend(), 0);
    const std::vector<int32_t> some{5, 5, 0};
    const WeightRows parts[] = {{a.view(), order}, {b.view()}, {b.view(), some}};
    ThreadPool pool(2);
    const auto w = pack_quantised(parts, pool);
    ASSERT_TRUE(w.ok());
    EXPECT_EQ((*w)->n(), 34);
    EXPECT_EQ((*w)->k(), k);
    EXPECT_EQ((*w)->size_bytes(), 3 * quant_form(type).panel_bytes(k / 32));
    EXPECT_EQ((*w)->format(), dtype_name(type));
    const auto source = [&](int64_t row) {
      return row < 24 ? a.view().row(23 - row) : b.view().row(row < 31 ? row - 24 : some[row - 31]);
    };
    std::vector<float> expected(k), got(k);
    for (int64_t row = 0; row < 34; ++row) {
      dequantise_row(type, source(row), k, expected.data());
      ASSERT_TRUE((*w)->read_row(row, got).ok());
      ASSERT_TRUE(same_bits(got, expected)) << row;
    }
    const auto x = gaussian(k, 103);
    const auto y = multiply(**w, cpu_level(), x, 1);
    const auto q = quantise(x.data(), k);
    for (int64_t row = 0; row < 34; ++row) EXPECT_EQ(y[row], planes_dot(type, source(row), q)) << row;
  }
}

}  // namespace
}  // namespace choral::kernels
