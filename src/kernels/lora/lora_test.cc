#include "kernels/lora/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/ref/lora.h"

namespace choral::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

float stored_as(float v, DType type) {
  if (type == DType::kBF16) return to_float(to_bfloat16(v));
  return type == DType::kF16 ? to_float(to_float16(v)) : v;
}

// Owned elements of any type; floats beside them as they were stored.
struct Values {
  DType type;
  Shape shape;
  std::vector<std::byte> bytes;
  std::vector<float> floats;

  Values(DType t, Shape s, std::vector<float> v) : type(t), shape(s), floats(std::move(v)) {
    bytes.resize(floats.size() * static_cast<size_t>(row_bytes(type, 1)) + 1);
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t half = type == DType::kBF16 ? to_bfloat16(floats[i]).bits : to_float16(floats[i]).bits;
      type == DType::kF32 ? std::memcpy(&bytes[i * 4], &floats[i], 4) : std::memcpy(&bytes[i * 2], &half, 2);
      floats[i] = stored_as(floats[i], type);
    }
  }
  TensorView view() const { return {bytes.data(), type, shape, kCpuDevice}; }
  MutableTensorView out() { return {bytes.data(), type, shape, kCpuDevice}; }
  float at(size_t i) const {
    uint16_t half;
    float v;
    std::memcpy(&half, &bytes[i * (type == DType::kF32 ? 4 : 2)], 2);
    std::memcpy(&v, &bytes[i * (type == DType::kF32 ? 4 : 2)], type == DType::kF32 ? 4 : 2);
    return type == DType::kF32 ? v : type == DType::kF16 ? to_float(Float16{half}) : to_float(BFloat16{half});
  }
  std::vector<float> rounded(DType as) const {
    std::vector<float> v = floats;
    for (float& x : v) x = stored_as(x, as);
    return v;
  }
};

Values random_values(DType type, Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(shape.elements());
  for (float& x : v) x = normal(random);
  return Values(type, shape, std::move(v));
}

struct Integers {
  std::vector<int64_t> values;
  Integers(std::vector<int64_t> v) : values(std::move(v)) {}
  TensorView view() const {
    return {reinterpret_cast<const std::byte*>(values.data()), DType::kI64, {std::ssize(values)}, kCpuDevice};
  }
};

// Half a unit in the last place of the type, and of its smallest number.
double rounding(DType type) { return type == DType::kF32 ? 0x1p-24 : type == DType::kF16 ? 0x1p-11 : 0x1p-8; }
double smallest(DType type) { return type == DType::kF16 ? 0x1p-25 : 0x1p-134; }

std::vector<CpuLevel> levels() {  // with code of their own
  std::vector<CpuLevel> all;
  for (const CpuLevel level : usable_cpu_levels()) {
    if (level <= CpuLevel::kAvx512) all.push_back(level);
  }
  return all;
}

std::vector<int64_t> random_indices(int64_t tokens, int64_t adapters, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> v(tokens);
  for (int64_t& x : v) x = static_cast<int64_t>(random() % static_cast<uint32_t>(adapters + 1)) - 1;
  return v;
}

class LoRAAtLevel : public testing::TestWithParam<CpuLevel> {
 protected:
  Context ctx(int threads = 2) { return {threads == 1 ? one_ : two_, GetParam(), arena_}; }

  struct Expected {
    std::vector<double> result, magnitude;
  };
  Expected oracle(const Values& inputs, const Values& stack, int64_t rows, const std::vector<int64_t>& indices, DType as) {
    const int64_t tokens = inputs.shape[0], features = inputs.shape[1];
    const auto x = inputs.rounded(as), w = stack.rounded(as);
    Expected e;
    e.result.resize(tokens * rows);
    e.magnitude.resize(e.result.size());
    ref::bgmv({x.data(), tokens, features}, w, indices, {e.result.data(), tokens, rows}, {e.magnitude.data(), tokens, rows});
    return e;
  }

  // K products summed in fp32, the scale, an addition, then one rounding to the type.
  static void expect_near(float got, double exact, double magnitude, int64_t terms, DType type, const std::string& what) {
    const double sum_error = static_cast<double>(terms + 6) * 0x1p-24 * magnitude;
    ASSERT_LE(std::fabs(got - exact), sum_error + rounding(type) * (std::fabs(exact) + sum_error) + smallest(type)) << what;
  }

  void check_shrink(const Values& inputs, const Values& a, DType type, const std::vector<int64_t>& indices, int64_t columns,
                    float scaling) {
    const int64_t tokens = inputs.shape[0], r = a.shape[a.shape.rank() - 2];
    Values out = random_values(type, {tokens, columns}, 99);
    const std::vector<float> before = out.floats;
    const Status status = bgmv_shrink(ctx(), inputs.view(), a.view(), out.out(), Integers(indices).view(), scaling);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const Expected e = oracle(inputs, a, r, indices, type);
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<size_t>(i * columns + c), from = static_cast<size_t>(i * r + c);
        const std::string what = fmt::format("row {} column {}", i, c);
        if (c >= r || indices[i] < 0) {
          ASSERT_EQ(out.at(at), before[at]) << what;
        } else {
          expect_near(out.at(at), scaling * e.result[from], std::fabs(scaling) * e.magnitude[from], inputs.shape[1], type, what);
        }
      }
    }
  }

  void check_expand(const Values& inputs, const Values& b, DType type, const std::vector<int64_t>& indices, int64_t columns,
                    bool add) {
    const int64_t tokens = inputs.shape[0], outs = b.shape[b.shape.rank() - 2];
    for (const int64_t offset : {int64_t{-1}, int64_t{0}, int64_t{7}}) {  // -1: no slice
      const int64_t begin = std::max<int64_t>(offset, 0);
      const int64_t width = offset < 0 ? columns : begin + outs + 3;
      Values out = random_values(type, {tokens, width}, 98);
      const std::vector<float> before = out.floats;
      const Integers index(indices);
      const Status status = offset < 0
                                ? bgmv_expand(ctx(), inputs.view(), b.view(), out.out(), index.view(), add)
                                : bgmv_expand_slice(ctx(), inputs.view(), b.view(), out.out(), index.view(), offset, outs, add);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const Expected e = oracle(inputs, b, outs, indices, type);
      for (int64_t i = 0; i < tokens; ++i) {
        for (int64_t c = 0; c < width; ++c) {
          const auto at = static_cast<size_t>(i * width + c);
          const std::string what = fmt::format("row {} column {} offset {} add {}", i, c, offset, add);
          if (c < begin || c >= begin + outs || indices[i] < 0) {
            ASSERT_EQ(out.at(at), before[at]) << what;
          } else {
            const auto from = static_cast<size_t>(i * outs + c - begin);
            const double old = add ? before[at] : 0;
            expect_near(out.at(at), old + e.result[from], std::fabs(old) + e.magnitude[from], inputs.shape[1], type, what);
          }
        }
      }
    }
  }

  ThreadPool one_{1}, two_{2};
  Arena arena_;
};

TEST_P(LoRAAtLevel, OddShapesOfEveryType) {
  uint32_t seed = 0;
  for (const DType in_type : kTypes) {
    for (const DType weight_type : kTypes) {
      for (const DType out_type : kTypes) {
        for (const int64_t in : {1, 5, 16, 31, 32, 33, 70}) {
          for (const int64_t r : {1, 2, 3, 7, 8, 9, 16, 17}) {
            ++seed;
            const int64_t tokens = 1 + seed % 9, adapters = 1 + seed % 4, outs = 1 + (in * 7 + r) % 70;
            const auto indices = random_indices(tokens, adapters, seed);
            const std::string what =
                fmt::format("{} {} {} in {} r {}", dtype_name(in_type), dtype_name(weight_type), dtype_name(out_type), in, r);
            const Values x = random_values(in_type, {tokens, in}, seed),
                         a = random_values(weight_type, {adapters, r, in}, seed + 1);
            ASSERT_NO_FATAL_FAILURE(
                check_shrink(x, a, out_type, indices, r + static_cast<int64_t>(seed % 3) - 1 + (r == 1), 0.7F))
                << what;
            const Values m = random_values(in_type, {tokens, r}, seed),
                         b = random_values(weight_type, {adapters, outs, r}, seed + 2);
            const int64_t width = std::max<int64_t>(1, outs + static_cast<int64_t>(seed % 3) - 1);
            ASSERT_NO_FATAL_FAILURE(check_expand(m, b, out_type, indices, width, seed % 2 == 0)) << what;
          }
        }
      }
    }
  }
}

TEST_P(LoRAAtLevel, RanksToFiveHundredAndManyRowsOfOneAdapter) {
  for (const DType type : kTypes) {
    for (const int64_t r : {64, 320, 511, 512}) {
      const auto indices = random_indices(5, 2, static_cast<uint32_t>(r));
      ASSERT_NO_FATAL_FAILURE(
          check_shrink(random_values(type, {5, 40}, 1), random_values(type, {2, r, 40}, 2), type, indices, r, -2.0F));
      ASSERT_NO_FATAL_FAILURE(
          check_expand(random_values(type, {5, r}, 3), random_values(type, {2, 50, r}, 4), type, indices, 50, true));
    }
    const auto indices = random_indices(150, 2, 6);
    ASSERT_NO_FATAL_FAILURE(
        check_shrink(random_values(type, {150, 300}, 1), random_values(type, {2, 12, 300}, 2), type, indices, 12, 1.0F));
    ASSERT_NO_FATAL_FAILURE(
        check_expand(random_values(type, {150, 12}, 3), random_values(type, {2, 300, 12}, 4), type, indices, 300, false));
  }
}

// Invariant 1: a row alone equals it in any company; the thread count does not show.
TEST_P(LoRAAtLevel, RowsDoNotDependOnTheirCompany) {
  for (const DType type : kTypes) {
    for (const auto& [in, r] : {std::pair<int64_t, int64_t>{300, 13}, {64, 16}}) {
      const int64_t tokens = 75, outs = 200;
      const auto indices = random_indices(tokens, 3, 7);
      const Values x = random_values(DType::kF32, {tokens, in}, 1), a = random_values(type, {3, r, in}, 2);
      const Values b = random_values(type, {3, outs, r}, 3);
      Values middle = random_values(DType::kF32, {tokens, r}, 4), y = random_values(type, {tokens, outs}, 5);
      const Values old = y;
      ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), a.view(), middle.out(), Integers(indices).view(), 0.3F).ok());
      ASSERT_TRUE(bgmv_expand(ctx(), middle.view(), b.view(), y.out(), Integers(indices).view()).ok());
      for (int64_t i = 0; i < tokens; ++i) {
        const Integers index({indices[i]});
        const auto row = [&](const Values& v, int64_t cols) {
          return TensorView{v.view().row(i), v.type, {1, cols}, kCpuDevice};
        };
        Values m1(DType::kF32, {1, r}, std::vector<float>(r)), y1(type, {1, outs}, std::vector<float>(outs));
        std::memcpy(y1.bytes.data(), old.view().row(i), row_bytes(type, outs));
        ASSERT_TRUE(bgmv_shrink(ctx(1), row(x, in), a.view(), m1.out(), index.view(), 0.3F).ok());
        ASSERT_TRUE(bgmv_expand(ctx(1), row(middle, r), b.view(), y1.out(), index.view()).ok());
        if (index.values[0] >= 0) {
          ASSERT_EQ(std::memcmp(m1.bytes.data(), middle.view().row(i), r * 4), 0) << i;
        }
        ASSERT_EQ(std::memcmp(y1.bytes.data(), y.view().row(i), row_bytes(type, outs)), 0) << i;
      }
    }
  }
}

TEST_P(LoRAAtLevel, InputsAndWeightsTakeTheOutputsTypeFirst) {
  // 257 is 256 in bfloat16, 2049 is 2048 in half.
  for (const auto& [type, odd] : {std::pair{DType::kBF16, 257.0F}, {DType::kF16, 2049.0F}}) {
    const Integers index({0});
    const Values x(DType::kF32, {1, 2}, {odd, 1 - odd}), ones(DType::kF32, {1, 1, 2}, {1, 1});
    const Values w(DType::kF32, {1, 1, 2}, {odd, 1 - odd}), plain(DType::kF32, {1, 2}, {1, 1});
    for (const auto& [inputs, stack] : {std::pair{&x, &ones}, {&plain, &w}}) {
      Values out(type, {1, 1}, {9});
      ASSERT_TRUE(bgmv_shrink(ctx(), inputs->view(), stack->view(), out.out(), index.view()).ok());
      EXPECT_EQ(out.at(0), 0.0F);
      ASSERT_TRUE(bgmv_expand(ctx(), inputs->view(), stack->view(), out.out(), index.view(), false).ok());
      EXPECT_EQ(out.at(0), 0.0F);
      Values wide(DType::kF32, {1, 1}, {9});
      ASSERT_TRUE(bgmv_shrink(ctx(), inputs->view(), stack->view(), wide.out(), index.view()).ok());
      EXPECT_EQ(wide.at(0), 1.0F);
    }
  }
}

TEST_P(LoRAAtLevel, ResultsAreRoundedOnce) {
  const Integers index({0});
  const Values x(DType::kBF16, {1, 2}, {256, 1}), ones(DType::kBF16, {1, 1, 2}, {1, 1});
  Values out(DType::kBF16, {1, 1}, {0});
  ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), ones.view(), out.out(), index.view(), 3.0F).ok());
  EXPECT_EQ(out.at(0), 772.0F);  // 771; a sum rounded to 256 first would give 768
  const Values delta(DType::kBF16, {1, 2}, {1, 0x1p-9F});
  Values y(DType::kBF16, {1, 1}, {256});
  ASSERT_TRUE(bgmv_expand(ctx(), delta.view(), ones.view(), y.out(), index.view()).ok());
  EXPECT_EQ(y.at(0), 258.0F);  // 257 + 2^-9; a delta rounded to 1 first would give the tie's 256
}

TEST_P(LoRAAtLevel, BaseRowsGetExactlyNothing) {
  for (const DType type : kTypes) {
    const Integers indices({-1, 1, -1});
    Values x = random_values(DType::kF32, {3, 40}, 1);
    for (int i = 0; i < 40; ++i) reinterpret_cast<float*>(x.bytes.data())[i] = NAN;  // may be garbage
    const Values a = random_values(type, {2, 4, 40}, 2), b = random_values(type, {2, 40, 4}, 3);
    Values middle = random_values(type, {3, 4}, 4), y(type, {3, 40}, std::vector<float>(120, -0.0F));
    const auto middle_before = middle.bytes, y_before = y.bytes;
    ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), a.view(), middle.out(), indices.view()).ok());
    for (const bool add : {true, false}) {
      ASSERT_TRUE(bgmv_expand(ctx(), middle.view(), b.view(), y.out(), indices.view(), add).ok());
      ASSERT_TRUE(bgmv_expand_slice(ctx(), middle.view(), b.view(), y.out(), indices.view(), 0, 40, add).ok());
    }
    const auto same = [&](const Values& v, const std::vector<std::byte>& before, int64_t row) {
      const auto n = static_cast<size_t>(row_bytes(type, v.shape[1]));
      return std::memcmp(v.bytes.data() + static_cast<size_t>(row) * n, before.data() + static_cast<size_t>(row) * n, n) == 0;
    };
    for (const int64_t row : {0, 2}) {
      EXPECT_TRUE(same(middle, middle_before, row));
      EXPECT_TRUE(same(y, y_before, row));
    }
    EXPECT_FALSE(same(y, y_before, 1));
  }
}

TEST_P(LoRAAtLevel, RowRules) {
  const Values b = random_values(DType::kF32, {2, 20, 4}, 1), one = random_values(DType::kF32, {1, 4}, 2);
  // One result goes to every row.
  Values y = random_values(DType::kF32, {11, 20}, 3), alone(DType::kF32, {1, 20}, std::vector<float>(20));
  const auto before = y.floats;
  ASSERT_TRUE(bgmv_expand(ctx(), one.view(), b.view(), alone.out(), Integers({1}).view(), false).ok());
  ASSERT_TRUE(bgmv_expand(ctx(), one.view(), b.view(), y.out(), Integers({1}).view(), true).ok());
  for (size_t i = 0; i < 220; ++i) ASSERT_EQ(y.at(i), before[i] + alone.at(i % 20));
  Values middle(DType::kF32, {3, 2}, std::vector<float>(6)), a = random_values(DType::kF32, {1, 2, 4}, 4);
  ASSERT_TRUE(bgmv_shrink(ctx(), one.view(), a.view(), middle.out(), Integers({0}).view()).ok());
  EXPECT_EQ(middle.at(0), middle.at(4));
  EXPECT_NE(middle.at(0), 0.0F);
  // Results beyond the output's rows are dropped, their indices still checked.
  const Values many = random_values(DType::kF32, {5, 4}, 5);
  Values two = random_values(DType::kF32, {2, 20}, 6), five = random_values(DType::kF32, {5, 20}, 7);
  ASSERT_TRUE(bgmv_expand(ctx(), many.view(), b.view(), two.out(), Integers({1, 0, 1, 0, 1}).view(), false).ok());
  ASSERT_TRUE(bgmv_expand(ctx(), many.view(), b.view(), five.out(), Integers({1, 0, 1, 0, 1}).view(), false).ok());
  EXPECT_EQ(std::memcmp(two.bytes.data(), five.bytes.data(), 160), 0);
  EXPECT_FALSE(bgmv_expand(ctx(), many.view(), b.view(), two.out(), Integers({1, 0, 1, 0, 2}).view(), false).ok());
  Values six = random_values(DType::kF32, {6, 20}, 8);
  EXPECT_THAT(bgmv_expand(ctx(), many.view(), b.view(), six.out(), Integers({1, 0, 1, 0, 1}).view()).to_string(),
              AllOf(HasSubstr("inputs has 5 rows"), HasSubstr("6 rows of output_tensor")));
  // Nothing at all is fine.
  Values none(DType::kF32, {0, 20}, {});
  const Values no_inputs(DType::kF32, {0, 4}, {});
  EXPECT_TRUE(bgmv_expand(ctx(), no_inputs.view(), b.view(), none.out(), Integers(std::vector<int64_t>{}).view()).ok());
}

TEST_P(LoRAAtLevel, FourDimensionsAndNarrowIndices) {
  const Values x = random_values(DType::kF16, {3, 10}, 1), flat = random_values(DType::kF16, {2, 5, 10}, 2);
  Values four = flat;
  four.shape = {2, 1, 5, 10};
  const std::vector<int32_t> narrow{1, -1, 0};
  const TensorView index{reinterpret_cast<const std::byte*>(narrow.data()), DType::kI32, {3}, kCpuDevice};
  Values a(DType::kF32, {3, 5}, std::vector<float>(15)), b = a;
  ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), flat.view(), a.out(), Integers({1, -1, 0}).view()).ok());
  ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), four.view(), b.out(), index).ok());
  EXPECT_EQ(a.bytes, b.bytes);
  four.shape = {1, 2, 5, 10};
  EXPECT_THAT(bgmv_shrink(ctx(), x.view(), four.view(), b.out(), index).to_string(),
              HasSubstr("lora_a_weights has shape [1, 2, 5, 10]"));
}

TEST_P(LoRAAtLevel, SequencesEqualTheirTokens) {
  const Integers lengths({3, 0, 1, 33, 0}), starts({0, 3, 3, 4, 37}), of_sequence({2, 0, -1, 1, 2});
  std::vector<int64_t> of_token;
  for (size_t i = 0; i < 5; ++i) of_token.insert(of_token.end(), lengths.values[i], of_sequence.values[i]);
  for (const DType type : kTypes) {
    const Values x = random_values(type, {37, 50}, 1), a = random_values(type, {3, 6, 50}, 2),
                 b = random_values(type, {3, 20, 6}, 3);
    Values m1(type, {37, 6}, std::vector<float>(37 * 6)), m2 = m1;
    const Integers token_index(of_token);
    ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), a.view(), m1.out(), token_index.view(), 0.5F).ok());
    ASSERT_TRUE(
        sgmv_shrink(ctx(), x.view(), a.view(), m2.out(), starts.view(), lengths.view(), of_sequence.view(), 5, 33, 37, 0.5F)
            .ok());
    EXPECT_EQ(m1.bytes, m2.bytes);
    Values y1 = random_values(type, {37, 25}, 4), y2 = y1;
    ASSERT_TRUE(bgmv_expand(ctx(), m1.view(), b.view(), y1.out(), token_index.view(), false).ok());
    ASSERT_TRUE(
        sgmv_expand(ctx(), m1.view(), b.view(), y2.out(), starts.view(), lengths.view(), of_sequence.view(), 5, 40, 37).ok());
    EXPECT_EQ(y1.bytes, y2.bytes) << "sgmv assigns by default";
    ASSERT_TRUE(bgmv_expand_slice(ctx(), m1.view(), b.view(), y1.out(), token_index.view(), 5, 20).ok());
    ASSERT_TRUE(sgmv_expand_slice(ctx(), m1.view(), b.view(), y2.out(), starts.view(), lengths.view(), of_sequence.view(), 5, 33,
                                  37, 5, 20, true)
                    .ok());
    EXPECT_EQ(y1.bytes, y2.bytes) << "bgmv adds by default";
  }
}

TEST_P(LoRAAtLevel, AllocatesNothingOnceWarm) {
  const Values x = random_values(DType::kBF16, {33, 100}, 1), a = random_values(DType::kF32, {4, 9, 100}, 2);
  Values middle(DType::kBF16, {33, 9}, std::vector<float>(33 * 9));
  const Integers index(random_indices(33, 4, 3));
  ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), a.view(), middle.out(), index.view()).ok());
  const int64_t grown = arena_.grown();
  ASSERT_TRUE(bgmv_shrink(ctx(), x.view(), a.view(), middle.out(), index.view()).ok());
  EXPECT_EQ(arena_.grown(), grown);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LoRAAtLevel, testing::ValuesIn(levels()),
                         [](const auto& test) { return std::string(cpu_level_name(test.param)); });

// One argument wrong at a time: the message names operation, argument, value and what was expected, and nothing is written.
struct Call {
  Values inputs = random_values(DType::kF32, {4, 8}, 1);
  Values a = random_values(DType::kF32, {2, 3, 8}, 2);
  Values b = random_values(DType::kF32, {2, 6, 8}, 3);
  Values out = random_values(DType::kF32, {4, 6}, 4);
  TensorView inputs_view = inputs.view(), a_view = a.view(), b_view = b.view();
  MutableTensorView out_view = out.out();
  Integers index{{0, 1, -1, 1}}, sequence_index{{0, 1}}, starts{{0, 1}}, lengths{{1, 3}};
  TensorView index_view = index.view(), starts_view = starts.view(), lengths_view = lengths.view();
  int64_t batches = 2, max_length = 3, tokens = 4, offset = 0, size = 6;

  ThreadPool pool{1};
  Arena arena;
  Context ctx{pool, CpuLevel::kBase, arena};

  std::string checked(const Status& status) const {
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      for (size_t i = 0; i < 24; ++i) EXPECT_EQ(out.at(i), out.floats[i]) << "wrote in spite of the error";
    }
    return status.to_string();
  }
  std::string shrink() { return checked(bgmv_shrink(ctx, inputs_view, a_view, out_view, index_view)); }
  std::string expand() { return checked(bgmv_expand(ctx, inputs_view, b_view, out_view, index_view)); }
  std::string slice() { return checked(bgmv_expand_slice(ctx, inputs_view, b_view, out_view, index_view, offset, size)); }
  std::string sequences() {
    return checked(sgmv_shrink(ctx, inputs_view, a_view, out_view, starts_view, lengths_view, sequence_index.view(), batches,
                               max_length, tokens, 1.0F));
  }
  std::string all_expands() {
    const std::string messages[] = {expand(), slice(),
                                    checked(sgmv_expand(ctx, inputs_view, b_view, out_view, starts_view, lengths_view,
                                                        sequence_index.view(), batches, max_length, tokens)),
                                    checked(sgmv_expand_slice(ctx, inputs_view, b_view, out_view, starts_view, lengths_view,
                                                              sequence_index.view(), batches, max_length, tokens, offset, size))};
    const char* names[] = {"bgmv_expand: ", "bgmv_expand_slice: ", "sgmv_expand: ", "sgmv_expand_slice: "};
    for (int i = 0; i < 4; ++i) EXPECT_THAT(messages[i], HasSubstr(names[i]));
    return messages[0];
  }
};

TEST(LoRAArguments, AreChecked) {
  const auto with = [](auto change, auto call) {
    Call c;
    change(c);
    return (c.*call)();
  };
  EXPECT_EQ(Call().shrink(), "ok");
  EXPECT_EQ(Call().sequences(), "ok");
  EXPECT_EQ(Call().expand(), "ok");
  EXPECT_EQ(Call().slice(), "ok");

  EXPECT_THAT(with(
                  [](Call& c) {
                    c.inputs_view.shape = {4, 2, 4};
                  },
                  &Call::shrink),
              AllOf(HasSubstr("bgmv_shrink: inputs has shape [4, 2, 4]"), HasSubstr("[tokens, features]")));
  EXPECT_THAT(with(
                  [](Call& c) {
                    c.inputs_view.shape = {8, 4};
                  },
                  &Call::all_expands),
              HasSubstr("inputs has shape [8, 4], expected [tokens, 8]"));
  EXPECT_THAT(with([](Call& c) { c.inputs_view.dtype = DType::kF64; }, &Call::shrink), HasSubstr("inputs has type float64"));
  EXPECT_THAT(with([](Call& c) { c.inputs_view.data = nullptr; }, &Call::shrink), HasSubstr("inputs [4, 8] has no data"));
  EXPECT_THAT(with([](Call& c) { c.inputs_view.device.host_accessible = false; }, &Call::shrink),
              HasSubstr("inputs lies on a device"));

  EXPECT_THAT(with(
                  [](Call& c) {
                    c.a_view.shape = {6, 8};
                  },
                  &Call::shrink),
              AllOf(HasSubstr("lora_a_weights has shape [6, 8]"), HasSubstr("[n, r, in]")));
  EXPECT_THAT(with([](Call& c) { c.a_view.dtype = DType::kI8; }, &Call::sequences),
              HasSubstr("sgmv_shrink: lora_a_weights has type int8"));
  EXPECT_THAT(with([](Call& c) { c.a_view.shape = {2, 0, 8}; }, &Call::shrink), HasSubstr("at least 1"));
  EXPECT_THAT(with([](Call& c) { c.a_view.shape = {-2, 3, 8}; }, &Call::shrink), HasSubstr("negative"));
  EXPECT_THAT(with(
                  [](Call& c) {
                    c.b_view.shape = {2, 2, 6, 4};
                  },
                  &Call::all_expands),
              HasSubstr("lora_b_weights has shape [2, 2, 6, 4]"));

  EXPECT_THAT(with([](Call& c) { c.out_view.shape = {24}; }, &Call::shrink), HasSubstr("output_tensor has shape [24]"));
  EXPECT_THAT(with([](Call& c) { c.out_view.dtype = DType::kI32; }, &Call::expand), HasSubstr("output_tensor has type int32"));
  EXPECT_THAT(with([](Call& c) { c.out_view.data += 1; }, &Call::expand), HasSubstr("output_tensor begins within an element"));

  EXPECT_THAT(with([](Call& c) { c.index.values[2] = 2; }, &Call::shrink),
              AllOf(HasSubstr("lora_indices_tensor[2] is 2"), HasSubstr("0 to 1")));
  EXPECT_THAT(with([](Call& c) { c.index.values[3] = -2; }, &Call::expand), HasSubstr("lora_indices_tensor[3] is -2"));
  EXPECT_THAT(with([](Call& c) { c.sequence_index.values[1] = 7; }, &Call::sequences), HasSubstr("lora_indices_tensor[1] is 7"));
  EXPECT_THAT(with([](Call& c) { c.index_view.shape = {3}; }, &Call::shrink),
              HasSubstr("lora_indices_tensor has shape [3], expected [4]"));
  EXPECT_THAT(with([](Call& c) { c.index_view.dtype = DType::kF32; }, &Call::shrink),
              HasSubstr("lora_indices_tensor has type float32"));

  EXPECT_THAT(with([](Call& c) { c.offset = -1; }, &Call::slice), HasSubstr("slice_offset is -1, expected 0 to 6"));
  EXPECT_THAT(with([](Call& c) { c.offset = 7; }, &Call::slice), HasSubstr("slice_offset is 7"));
  EXPECT_THAT(with([](Call& c) { c.offset = 1; }, &Call::slice),
              HasSubstr("slice_size is 6 at slice_offset 1, expected at most 5"));
  EXPECT_THAT(with([](Call& c) { c.size = 5; }, &Call::slice), HasSubstr("slice_size is 5, expected 6"));

  EXPECT_THAT(with([](Call& c) { c.batches = 3; }, &Call::sequences), HasSubstr("expected [3], one for each of batches"));
  EXPECT_THAT(with([](Call& c) { c.batches = -1; }, &Call::sequences), HasSubstr("batches is -1"));
  EXPECT_THAT(with([](Call& c) { c.max_length = 2; }, &Call::sequences),
              HasSubstr("max_seq_length is 2, expected at least seq_len_tensor[1] = 3"));
  EXPECT_THAT(with([](Call& c) { c.tokens = 5; }, &Call::sequences), HasSubstr("token_nums is 5, expected 4"));
  EXPECT_THAT(with([](Call& c) { c.starts.values[1] = 2; }, &Call::sequences), HasSubstr("b_seq_start_loc[1] is 2, expected 1"));
  EXPECT_THAT(with([](Call& c) { c.lengths.values[1] = 4; }, &Call::sequences),
              HasSubstr("seq_len_tensor[1] is 4, expected 0 to 3"));
  EXPECT_THAT(with([](Call& c) { c.lengths.values[0] = -1; }, &Call::sequences), HasSubstr("seq_len_tensor[0] is -1"));
  EXPECT_THAT(with([](Call& c) { c.lengths.values[1] = 2; }, &Call::sequences),
              HasSubstr("token_nums is 4, expected the sum of seq_len_tensor, 3"));
  EXPECT_THAT(with([](Call& c) { c.lengths_view.dtype = DType::kF32; }, &Call::sequences), HasSubstr("seq_len_tensor has type"));
  EXPECT_THAT(with([](Call& c) { c.starts_view.shape = {2, 1}; }, &Call::sequences), HasSubstr("b_seq_start_loc has shape"));
}

}  // namespace
}  // namespace choral::kernels
