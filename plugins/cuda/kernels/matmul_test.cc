// Products of every form of W: against sums in double, and to the bit the same whatever else is in the batch and whichever kernel
// serves it.
#include <algorithm>
#include <cmath>

#include "float16.h"
#include "test_weight.h"

namespace choral_cuda {
namespace {

struct Asked {
  int sm_count = 1000;  // many: sections of tens of rows are blocks of their own; one: more than 64 rows are a wide kernel's
  const Shared<float>* bias = nullptr;
  bool accumulate = false;
  bool has_wgmma = false;  // many rows are the kernel's on it
  size_t block_shared_bytes = 227 << 10;
};

void multiply(const TestWeight& w, const choral_matrix& x, const choral_matrix& y, const Asked& asked = {}) {
  TestLaunch launch(matmul_scratch_bytes(w.packed, x.rows), asked.sm_count, asked.block_shared_bytes);
  const choral_matmul_args args{.weight = nullptr,
                                .x = x,
                                .y = y,
                                .bias = asked.bias != nullptr ? vector_of(*asked.bias) : choral_vector{},
                                .accumulate = asked.accumulate};
  Launch queue = launch.get();
  queue.has_wgmma = asked.has_wgmma;
  ASSERT_EQ(done(matmul(queue, w.packed, args)), cudaSuccess);
}

// x as the form of W meets it, in double.
std::vector<double> met(const TestWeight& w, const std::vector<float>& x) {
  std::vector<double> out(x.begin(), x.end());
  if (w.activations == CHORAL_X_16) {
    const bool f16 = w.dtype == CHORAL_F16;
    std::transform(x.begin(), x.end(), out.begin(), [&](float v) { return f16 ? from_f16(to_f16(v)) : from_bf16(to_bf16(v)); });
  }
  if (w.activations != CHORAL_X_INT8_BLOCKS || w.dtype == CHORAL_BF16) return out;
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::abs(x[i]));
    for (size_t i = b; i < b + 32; ++i) out[i] = std::nearbyint(x[i] / (largest / 127.0f)) * double{largest / 127.0f};
  }
  return out;
}

void expect_product(const TestWeight& w, const TestMatrix& x, const TestMatrix& y) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    const auto values = met(w, x.row(r));
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < w.cols; ++k) {
        sum += w.w[n][k] * values[k];
        magnitude += std::abs(w.w[n][k] * values[k]);
      }
      // x has 16 bits at least, or is what it was rounded to; a sum of floats in sections of at most a few hundred.
      const double of_x = w.activations == CHORAL_X_16 ? 0 : std::ldexp(1, -17);
      expect_near(y.at(r, n), sum, magnitude * (of_x + std::ldexp(1, -20)) + 1e-6, r, n);
    }
  }
  EXPECT_TRUE(y.gaps_are_whole());
}

// The ABI's formula, to the bit.
void expect_int8_product(const TestWeight& w, const TestMatrix& x, const TestMatrix& y) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    float largest = 0;
    for (const float v : x.row(r)) largest = std::max(largest, std::abs(v));
    const float step = w.has_fixed_input ? w.input_scale : largest / 127.0f;
    for (int64_t n = 0; n < w.rows; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < w.cols; ++k) {
        const float least = w.has_fixed_input ? -128.0f : -127.0f;
        const float q = std::min(std::max(std::nearbyint(x.at(r, k) / step) + w.input_offset, least), 127.0f);
        sum += (static_cast<int64_t>(q) - w.input_offset) * w.q[n][k];
      }
      const float wanted = std::fma(static_cast<float>(sum), w.scales[n], 0.0f) * (w.has_fixed_input ? 1.0f : step);
      EXPECT_EQ(y.at(r, n), wanted) << "at [" << r << ", " << n << "]";
    }
  }
}

class Matmul : public ::testing::TestWithParam<TestWeight> {};

TEST_P(Matmul, IsTheSumOfProducts) {
  TestWeight w = GetParam();
  w.make(40, 512, 1);
  TestMatrix x(5, w.cols), y(5, w.rows);
  x.fill(2);
  multiply(w, x.view(), y.view());
  if (w.activations == CHORAL_X_INT8_ROWS) {
    expect_int8_product(w, x, y);
  } else {
    expect_product(w, x, y);
  }
}

TEST_P(Matmul, RowsAreReadBackAsTheyAreMultiplied) {
  TestWeight w = GetParam();
  w.make(37, 256, 3);
  const Shared<int32_t> ids{36, 0, 17};
  TestMatrix out(3, w.cols);
  TestLaunch launch;
  ASSERT_EQ(done(gather_rows(launch.get(), w.packed, {.ids = ids.data(), .out = out.view()})), cudaSuccess);
  for (int64_t i = 0; i < 3; ++i) {
    std::vector<float> row(w.cols);
    unpack_row(w.plan, w.image.data() + ids[i] / kTileRows * w.packed.tile_bytes, ids[i], row.data());
    EXPECT_TRUE(same_bits(row, out.row(i)));
    for (int64_t k = 0; k < w.cols; ++k) expect_near(row[k], w.w[ids[i]][k], 4e-7 * (1 + std::abs(w.w[ids[i]][k])), ids[i], k);
  }
}

// 83 rows by both kernels, and on a card whose blocks have less shared memory; some of them alone or with few others, at other
// places of the batch.
TEST_P(Matmul, RowsDoNotKnowOfEachOther) {
  TestWeight w = GetParam();
  w.make(25, 768, 4);
  constexpr int64_t kRows = 83;
  TestMatrix x(kRows, w.cols), split(kRows, w.rows), wide(kRows, w.rows), small(kRows, w.rows);
  x.fill(5);
  multiply(w, x.view(), split.view());
  multiply(w, x.view(), wide.view(), {.sm_count = 1});
  multiply(w, x.view(), small.view(), {.sm_count = 1, .block_shared_bytes = 99 << 10});
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_TRUE(same_bits(split.row(r), wide.row(r))) << r;
    EXPECT_TRUE(same_bits(small.row(r), wide.row(r))) << r;
  }
  struct Part {
    int64_t begin, count;
    int sm_count;
  };
  // A row alone, one or two tiles of x, tens of rows with sections in blocks of their own and without.
  for (const Part part :
       {Part{0, 1, 1000}, {7, 1, 1}, {82, 1, 1000}, {3, 8, 1000}, {50, 9, 1000}, {60, 20, 1000}, {31, 30, 1}, {10, 60, 1}}) {
    TestMatrix some(part.count, w.rows);
    multiply(w, x.rows_from(part.begin, part.count), some.view(), {.sm_count = part.sm_count});
    for (int64_t i = 0; i < part.count; ++i)
      EXPECT_TRUE(same_bits(some.row(i), wide.row(part.begin + i))) << part.begin << " + " << i;
  }
}

// Of W more than a block, sections of two blocks and one of one, fewer rows of x than a block has; as many as each of the kernels
// takes, with sections in one block and in blocks of their own.
TEST_P(Matmul, WarpgroupsGiveTheBitsOfWarps) {
  if (!device_has_wgmma()) GTEST_SKIP() << "no device of compute capability 9.0";
  TestWeight w = GetParam();
  w.make(140, w.has_scales ? 672 : 768, 15);
  if (w.packed.format == Format::kF32) GTEST_SKIP() << "no weights for tensor cores";
  for (const int64_t rows : {139, 75, 61, 29}) {
    TestMatrix x(rows, w.cols), warps(rows, w.rows);
    x.fill(16);
    multiply(w, x.view(), warps.view(), {.sm_count = 1});
    for (const int sm_count : {1, 10}) {
      TestMatrix warpgroups(rows, w.rows);
      multiply(w, x.view(), warpgroups.view(), {.sm_count = sm_count, .has_wgmma = true});
      for (int64_t r = 0; r < rows; ++r) EXPECT_TRUE(same_bits(warps.row(r), warpgroups.row(r))) << r << " of " << rows;
      EXPECT_TRUE(warpgroups.gaps_are_whole());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Matmul, ::testing::ValuesIn(every_form()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(MatmulEpilogue, AddsBiasAndWhatWasThere) {
  TestWeight w = every_form()[1];
  w.make(20, 128, 6);
  TestMatrix x(3, w.cols), plain(3, w.rows), y(3, w.rows);
  x.fill(7);
  y.fill(8);
  const TestMatrix before = y;
  const auto bias = random_floats(w.rows, 9);
  multiply(w, x.view(), plain.view());
  multiply(w, x.view(), y.view(), {.bias = &bias, .accumulate = true});
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t n = 0; n < w.rows; ++n) EXPECT_EQ(y.at(r, n), plain.at(r, n) + bias[n] + before.at(r, n));
  }
}

// Several blocks in both directions, the last ones not full; more columns than stages. Of the last block's rows of x those that
// are there are copied alone.
TEST(MatmulWarpgroups, TileTheWholeProduct) {
  if (!device_has_wgmma()) GTEST_SKIP() << "no device of compute capability 9.0";
  for (const int32_t activations : {CHORAL_X_16, CHORAL_X_FULL}) {
    TestWeight w{.name = "bf16", .stored_dtype = CHORAL_BF16, .dtype = CHORAL_BF16, .activations = activations};
    w.make(270, 330, 17);
    TestMatrix x(261, w.cols), y(261, w.rows);
    x.fill(18);
    multiply(w, x.view(), y.view(), {.sm_count = 1, .has_wgmma = true});
    expect_product(w, x, y);
  }
}

// Long sums, of numbers that cancel, that are lost beside others, and that are subnormal: whoever adds in another order, keeps
// other bits between or flushes small numbers is found.
TEST(MatmulWarpgroups, HaveTheBitsOfWarpsWhateverTheNumbers) {
  if (!device_has_wgmma()) GTEST_SKIP() << "no device of compute capability 9.0";
  const int64_t cols = launches_so_far() < 0 ? 4096 : 256;  // an emulated product takes its time
  for (const auto& [dtype, lowest] : {std::pair{CHORAL_BF16, -126}, {CHORAL_F16, -24}}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      for (const int span : {4, 24, 60}) {  // of exponents; the widest reaches below the smallest normal number
        TestWeight w{.name = "wide", .stored_dtype = dtype, .dtype = dtype, .activations = CHORAL_X_16};
        w.values = [random = std::mt19937(seed), span, lowest = lowest]() mutable {
          const int exponent = std::max(static_cast<int>(random() % static_cast<uint32_t>(span)) - span + 1, lowest - 6);
          return std::ldexp(static_cast<float>(random() % 255) - 127.0F, exponent - 6);
        };
        w.make(64, cols, seed);
        for (const int64_t rows : {72, 136}) {
          TestMatrix x(rows, w.cols), warps(rows, w.rows), warpgroups(rows, w.rows);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < x.cols(); ++k) x.at(r, k) = w.values();
          }
          multiply(w, x.view(), warps.view(), {.sm_count = 1});
          multiply(w, x.view(), warpgroups.view(), {.sm_count = 1, .has_wgmma = true});
          int64_t different = 0;
          for (int64_t r = 0; r < rows; ++r) different += !same_bits(warps.row(r), warpgroups.row(r));
          EXPECT_EQ(different, 0) << "of " << rows << " rows, dtype " << dtype << ", seed " << seed << ", span " << span;
        }
      }
    }
  }
}

TEST(MatmulNumbers, RowsWithoutNumbersStayAlone) {
  for (TestWeight& w : every_form()) {
    w.make(16, 256, 10);
    TestMatrix x(3, w.cols), y(3, w.rows), good(3, w.rows);
    x.fill(11);
    multiply(w, x.view(), good.view());
    x.at(1, 100) = NAN;
    multiply(w, x.view(), y.view());
    EXPECT_TRUE(same_bits(y.row(0), good.row(0)) && same_bits(y.row(2), good.row(2))) << w.name;
    for (int64_t n = 0; n < w.rows; ++n) EXPECT_TRUE(std::isnan(y.at(1, n))) << w.name;
  }
}

TEST(MatmulNumbers, LargeAndSmallRowsKeepTheirBits) {
  TestWeight w = every_form()[3];  // f16: x needs a power of two
  w.make(16, 64, 12);
  for (const float scale : {1e-30f, 1e-6f, 1e6f, 1e30f}) {
    TestMatrix x(1, w.cols), y(1, w.rows);
    x.fill(13, scale);
    multiply(w, x.view(), y.view());
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < w.cols; ++k) sum += w.w[n][k] * x.at(0, k);
      expect_near(y.at(0, n), sum, scale * 64 * 1e-6, 0, n);
    }
  }
}

TEST(MatmulRefusals, SayWhy) {
  TestWeight w;
  const float scale = 1;
  const int32_t data = 0;
  const choral_weight_part part{&data, 1, 4, nullptr};
  choral_weight weight{.stored_dtype = CHORAL_I8,
                       .dtype = CHORAL_I8,
                       .cols = 96,
                       .parts = &part,
                       .part_count = 1,
                       .bits = 8,
                       .activations = CHORAL_X_INT8_ROWS,
                       .group_size = 32,
                       .scales = &scale,
                       .scale_count = 3};
  PackPlan plan;
  EXPECT_STREQ(plan_packing(weight, &plan), "int8 rows of x with several scales a row");
  weight.activations = CHORAL_X_16 + 1;
  EXPECT_STREQ(plan_packing(weight, &plan), "a form of x that is not known");
  weight.activations = CHORAL_X_FULL;
  weight.group_size = 48;
  EXPECT_STREQ(plan_packing(weight, &plan), "groups of columns that are not 16, 32 or a multiple of 64");
  weight.scale_count = 0;
  weight.stored_dtype = weight.dtype = CHORAL_TQ1_0;
  EXPECT_STREQ(plan_packing(weight, &plan), "an element type that it does not read");
  weight.stored_dtype = weight.dtype = CHORAL_F32;
  weight.activations = CHORAL_X_16;
  EXPECT_STREQ(plan_packing(weight, &plan), "x in 16 bits by weights of 32");
}

TEST(MatmulFaults, IdsThatAreNoRows) {
  TestWeight w = every_form()[1];
  w.make(20, 64, 14);
  const Shared<int32_t> ids{20, -1, 3};
  TestMatrix out(3, w.cols);
  TestLaunch launch;
  ASSERT_EQ(done(gather_rows(launch.get(), w.packed, {.ids = ids.data(), .out = out.view()})), cudaSuccess);
  EXPECT_EQ(launch.fault(), kRowBeyond);
  EXPECT_TRUE(std::isnan(out.at(0, 0)) && std::isnan(out.at(1, 0)) && out.at(2, 0) == static_cast<float>(w.w[3][0]));
}

}  // namespace
}  // namespace choral_cuda
