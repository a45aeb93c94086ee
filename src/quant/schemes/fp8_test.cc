// fp8 weights through a layer's whole life: stored with every form of scale, and made of floats while they are loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/checked_math.h"
#include "base/float8.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "platform/cpu_context_test.h"
#include "quant/scheme_linear.h"
#include "quant/weights_test.h"

namespace choral::quant {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::StoredWeights;

// Codes of every sign and size, none a NaN.
Tensor codes_of(int64_t rows, int64_t k, int seed) {
  Tensor codes = *Tensor::allocate(DType::kF8E4M3, {rows, k});
  for (int64_t i = 0; i < rows * k; ++i) {
    const auto mixed = static_cast<uint32_t>(i + 977 * seed) * 2654435761u >> 7;
    codes.as<uint8_t>()[i] = static_cast<uint8_t>((mixed & 0x80u) | (mixed >> 8) % 0x7Fu);
  }
  return codes;
}

std::vector<float> some_scales(int64_t count) {
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i) scales.push_back(0.25f + 0.125f * static_cast<float>(i % 29));  // bf16 and f16 have them
  return scales;
}

class Fp8Test : public ::testing::Test {
 protected:
  using Method = std::unique_ptr<LinearMethod>;

  Result<Method> load(const LinearShape& shape, WeightSource& source, SchemePtr scheme) {
    Method method = make_scheme_linear_method({std::move(scheme), "a test"});
    ParameterSet parameters;
    method->create_weights(shape, parameters);
    CHORAL_RETURN_IF_ERROR(parameters.weight_loader(source));
    CHORAL_RETURN_IF_ERROR(method->process_weights_after_loading(ctx_, source.request(), shape, parameters));
    parameters.release(source);
    return method;
  }
  std::string error(const LinearShape& shape, WeightSource& source, Fp8Blocks blocks = {}) {
    const auto method = load(shape, source, fp8_scheme(blocks));
    EXPECT_FALSE(method.ok());
    return method.ok() ? std::string() : method.status().message();
  }

  std::vector<float> apply(const LinearMethod& method, const LinearShape& shape, std::vector<float> x) {
    const auto rows = std::ssize(x) / shape.in;
    std::vector<float> y(rows * shape.out_total());
    method.apply(ctx_, {x.data(), rows, shape.in}, {}, {y.data(), rows, shape.out_total()});
    return y;
  }
  static std::vector<float> read_row(const LinearMethod& method, int64_t row, int64_t in) {
    std::vector<float> out(in);
    EXPECT_TRUE(method.read_row(row, out).ok());
    return out;
  }

  platform::testing::CpuContext cpu_;
  platform::Context& ctx_ = *cpu_;
};

TEST_F(Fp8Test, AScaleIsOneOfAllOrOneOfEachRowInAnyForm) {
  constexpr int64_t kIn = 40;
  const Tensor q = codes_of(5, kIn, 1), k = codes_of(3, kIn, 2);
  const LinearShape shape{.in = kIn, .out = {5, 3}, .shard_names = {"q", "k"}};
  for (const Shape& of_q : {Shape{5, 1}, Shape{5}, Shape{1}, Shape{}, Shape{1, 1}}) {
    for (const Shape& of_k : {Shape{3, 1}, Shape{}}) {
      for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
        for (const char* name : {"weight_scale", "weight_scale_inv"}) {
          StoredWeights source;
          source.add("q.weight", q.view());
          source.add("k.weight", k.view());
          source.add(fmt::format("q.{}", name), type, of_q, some_scales(of_q.elements()));
          source.add(fmt::format("k.{}", name), type, of_k, some_scales(of_k.elements()));
          const auto method = load(shape, source, fp8_scheme({}));
          ASSERT_TRUE(method.ok()) << method.status().message();
          EXPECT_EQ((*method)->format(), "fp8");
          for (int64_t row = 0; row < 8; ++row) {
            const Tensor& codes = row < 5 ? q : k;
            const int64_t own = row < 5 ? row : row - 5, count = (row < 5 ? of_q : of_k).elements();
            const float scale = some_scales(count)[count == 1 ? 0 : own];
            const auto w = read_row(**method, row, kIn);
            for (int64_t i = 0; i < kIn; ++i) {
              ASSERT_EQ(w[i], to_float(codes.as<Float8E4M3>()[own * kIn + i]) * scale) << name << " row " << row;
            }
          }
        }
      }
    }
  }
}

// Members have grids of their own, whose last blocks are cut where the member ends.
TEST_F(Fp8Test, BlocksAreOfEachMemberAndTheLastMayBePartial) {
  for (const auto& [block, in] : {std::pair{Fp8Blocks{128, 128}, 300}, {Fp8Blocks{64, 32}, 65}, {Fp8Blocks{32, 256}, 40}}) {
    const LinearShape shape{.in = in, .out = {200, 40}, .shard_names = {"q", "k"}};
    StoredWeights source;
    std::vector<Tensor> codes;
    std::vector<std::vector<float>> grids;
    for (int i = 0; i < 2; ++i) {
      const Shape grid{ceil_div(shape.out[i], block.rows), ceil_div(shape.in, block.cols)};
      codes.push_back(codes_of(shape.out[i], in, i));
      grids.push_back(some_scales(grid.elements()));
      source.add(shape.shard_names[i] + ".weight", codes.back().view());
      source.add(shape.shard_names[i] + ".weight_scale_inv", DType::kF32, grid, grids.back());
    }
    const auto method = load(shape, source, fp8_scheme(block));
    ASSERT_TRUE(method.ok()) << method.status().message();
    EXPECT_EQ((*method)->format(), fmt::format("fp8 in groups of {}", block.cols));
    std::vector<float> weight;
    for (int64_t row = 0; row < 240; ++row) {
      const int member = row < 200 ? 0 : 1;
      const int64_t own = row - 200 * member, columns = ceil_div(shape.in, block.cols);
      const auto w = read_row(**method, row, in);
      for (int64_t i = 0; i < in; ++i) {
        const float scale = grids[member][own / block.rows * columns + i / block.cols];
        ASSERT_EQ(w[i], to_float(codes[member].as<Float8E4M3>()[own * in + i]) * scale) << row << "," << i;
      }
      weight.insert(weight.end(), w.begin(), w.end());
    }
    // As the same numbers kept as float32.
    StoredWeights floats;
    floats.add("w.weight", DType::kF32, {240, in}, weight);
    const LinearShape one{.in = in, .out = {240}, .shard_names = {"w"}};
    const auto x = kernels::gaussian(20 * in, /*seed=*/4);
    EXPECT_EQ(apply(**method, shape, x), apply(**load(one, floats, float_scheme()), one, x));
  }
}

// Where the checkpoint does not say whether scales are of blocks, each member's shape does.
TEST_F(Fp8Test, UnsaidBlocksAreThoseOfTheScalesShape) {
  constexpr int64_t kIn = 200;
  constexpr Fp8Blocks kUnsaid{128, 128, /*said=*/false};
  const LinearShape shape{.in = kIn, .out = {150, 3, 4}, .shard_names = {"q", "k", "v"}};
  for (const bool in_blocks : {true, false}) {
    StoredWeights source;
    std::vector<Tensor> codes;
    std::vector<std::vector<float>> scales;
    const Shape shapes[] = {in_blocks ? Shape{2, 2} : Shape{150}, {3, 1}, {}};
    for (int i = 0; i < 3; ++i) {
      codes.push_back(codes_of(shape.out[i], kIn, i));
      scales.push_back(some_scales(shapes[i].elements()));
      source.add(shape.shard_names[i] + ".weight", codes.back().view());
      source.add(shape.shard_names[i] + ".weight_scale_inv", DType::kF32, shapes[i], scales.back());
    }
    const auto method = load(shape, source, fp8_scheme(kUnsaid));
    ASSERT_TRUE(method.ok()) << method.status().message();
    EXPECT_EQ((*method)->format(), in_blocks ? "fp8 in groups of 128" : "fp8");
    for (int64_t row = 0; row < 157; ++row) {
      const int member = row < 150 ? 0 : row < 153 ? 1 : 2;
      const int64_t own = row - (member == 0 ? 0 : member == 1 ? 150 : 153);
      const auto w = read_row(**method, row, kIn);
      for (int64_t i = 0; i < kIn; ++i) {
        const int64_t scale = member == 2 ? 0 : member == 0 && in_blocks ? own / 128 * 2 + i / 128 : own;
        ASSERT_EQ(w[i], to_float(codes[member].as<Float8E4M3>()[own * kIn + i]) * scales[member][scale]) << row << "," << i;
      }
    }
  }
  StoredWeights source;
  const Tensor codes = codes_of(150, kIn, 1);
  source.add("o.weight", codes.view());
  source.add("o.weight_scale_inv", DType::kF32, {2, 1}, {1, 1});
  EXPECT_THAT(error({.in = kIn, .out = {150}, .shard_names = {"o"}}, source, kUnsaid),
              HasSubstr("o.weight_scale_inv has shape [2, 1], not [150, 1]"));
}

TEST_F(Fp8Test, ScalesMayBeExponentsAlone) {
  const Tensor codes = codes_of(40, 96, 1);
  const LinearShape shape{.in = 96, .out = {40}, .shard_names = {"o"}};
  for (const DType type : {DType::kF8E8M0, DType::kU8}) {
    for (const Fp8Blocks blocks : {Fp8Blocks{32, 64}, Fp8Blocks{1, 32}}) {
      const int64_t columns = ceil_div(int64_t{96}, blocks.cols);
      Tensor exponents = *Tensor::allocate(type, {ceil_div(int64_t{40}, blocks.rows), columns});
      const auto bytes = exponents.as<uint8_t>();
      for (int64_t i = 0; i < std::ssize(bytes); ++i) bytes[i] = static_cast<uint8_t>(120 + i % 15);
      StoredWeights source;
      source.add("o.weight", codes.view());
      source.add("o.weight_scale_inv", exponents.view());
      const auto method = load(shape, source, fp8_scheme(blocks));
      ASSERT_TRUE(method.ok()) << method.status().message();
      for (int64_t row = 0; row < 40; ++row) {
        const auto w = read_row(**method, row, 96);
        for (int64_t i = 0; i < 96; ++i) {
          const int exponent = bytes[row / blocks.rows * columns + i / blocks.cols] - 127;
          ASSERT_EQ(w[i], std::ldexp(to_float(codes.as<Float8E4M3>()[row * 96 + i]), exponent)) << row << "," << i;
        }
      }
      bytes[1] = 0xFF;
      EXPECT_THAT(error(shape, source, blocks), HasSubstr("o.weight_scale_inv holds a NaN"));
    }
  }
}

TEST_F(Fp8Test, ScalesOfActivationsAreTakenAndNotUsed) {
  const Tensor codes = codes_of(2, 32, 1);
  const LinearShape shape{.in = 32, .out = {2}, .shard_names = {"o"}};
  std::vector<float> expected;
  for (const char* name : {"", "o.input_scale", "o.activation_scale"}) {
    StoredWeights source;
    source.add("o.weight", codes.view());
    source.add("o.weight_scale", DType::kF32, {1}, {0.5f});
    if (*name != '\0') source.add(name, DType::kF32, {1}, {0.01f});
    const auto method = load(shape, source, fp8_scheme({}));
    ASSERT_TRUE(method.ok()) << method.status().message();
    const auto y = apply(**method, shape, std::vector<float>(32, 1.7f));
    if (expected.empty()) expected = y;
    EXPECT_EQ(y, expected);
    if (*name == '\0') continue;
    EXPECT_THAT(source.released(), Contains(name));
  }
}

TEST_F(Fp8Test, WhatIsMissingOrWrongIsNamed) {
  const Tensor codes = codes_of(130, 256, 1);
  const LinearShape shape{.in = 256, .out = {130}, .shard_names = {"o"}};
  StoredWeights source;
  source.add("o.weight", codes.view());
  EXPECT_THAT(error(shape, source), HasSubstr("o.weight has neither o.weight_scale nor o.weight_scale_inv in the checkpoint"));
  source.add("o.weight_scale", DType::kF32, {2, 2}, {1, 1, 1, 1});
  EXPECT_THAT(error(shape, source), HasSubstr("tensor o.weight_scale has shape [2, 2], not [130, 1]"));
  EXPECT_THAT(error(shape, source, {64, 128}), HasSubstr("tensor o.weight_scale has shape [2, 2], not [3, 2]"));
  EXPECT_TRUE(load(shape, source, fp8_scheme({128, 128})).ok());
  source.add("o.weight_scale_inv", DType::kF32, {2, 2}, {1, 1, 1, 1});
  EXPECT_THAT(error(shape, source, {128, 128}), HasSubstr("o.weight has both o.weight_scale and o.weight_scale_inv"));

  StoredWeights wrong;
  wrong.add("o.weight", codes.view());
  wrong.add("o.weight_scale", DType::kF32, {1}, {std::numeric_limits<float>::infinity()});
  EXPECT_THAT(error(shape, wrong), HasSubstr("o.weight_scale holds a NaN or an infinity"));
  wrong.add("o.weight_scale", DType::kF32, {1}, {1.0f});
  Tensor nan = codes_of(130, 256, 1);
  nan.as<uint8_t>()[129 * 256 + 3] = 0xFF;
  wrong.add("o.weight", nan.view());
  EXPECT_THAT(error(shape, wrong), AllOf(HasSubstr("o: "), HasSubstr("holds a NaN in row 129")));
  wrong.add("o.weight", DType::kBF16, {130, 256}, std::vector<float>(130 * 256));
  EXPECT_THAT(error(shape, wrong), HasSubstr("tensor o.weight is stored as bfloat16, float8_e4m3 is wanted"));
}

TEST_F(Fp8Test, InFlightIsItsFormulaOnTheLoadedRows) {
  constexpr int64_t kIn = 70;
  auto q = kernels::gaussian(3 * kIn, /*seed=*/1), k = kernels::gaussian(2 * kIn, /*seed=*/2);
  std::fill_n(q.begin() + kIn, kIn, 0.0f);  // a row of zeros
  k[0] = 1000.0f;                           // a value beside which the others become small, some subnormal
  k[1] = -1000.0f;
  StoredWeights source;
  source.add("q.weight", DType::kF32, {3, kIn}, q, {2, 0, 1});
  source.add("k.weight", DType::kF32, {2, kIn}, k);
  const LinearShape shape{.in = kIn, .out = {3, 2}, .shard_names = {"q", "k"}};
  const auto method = load(shape, source, fp8_in_flight_scheme());
  ASSERT_TRUE(method.ok()) << method.status().message();
  EXPECT_EQ((*method)->format(), "fp8");
  const std::vector<std::span<const float>> rows{std::span(q).subspan(2 * kIn, kIn), std::span(q).first(kIn),
                                                 std::span(q).subspan(kIn, kIn), std::span(k).first(kIn),
                                                 std::span(k).subspan(kIn, kIn)};
  for (int64_t j = 0; j < 5; ++j) {
    float largest = 0;
    for (const float v : rows[j]) largest = std::max(largest, std::abs(v));
    const float scale = largest / 448.0f;
    const auto w = read_row(**method, j, kIn);
    for (int64_t i = 0; i < kIn; ++i) {
      EXPECT_EQ(w[i], scale == 0 ? 0.0f : to_float(to_float8_e4m3(rows[j][i] / scale)) * scale);
      // Three bits after the first, and 2^-9 of the scale below 2^-6 of it: half a unit, and what dividing and multiplying round.
      EXPECT_NEAR(w[i], rows[j][i], std::max(std::abs(rows[j][i]) * 0x1.001p-4f, scale * 0x1.001p-10f));
    }
  }
  EXPECT_EQ(read_row(**method, 3, kIn)[1], -1000.0f) << "the largest is kept";
}

TEST_F(Fp8Test, InFlightRefusesWhatIsNoNumber) {
  const LinearShape shape{.in = 32, .out = {3}, .shard_names = {"o"}};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(96, 1.0f);
    values[40] = values[70] = bad;
    StoredWeights source;
    source.add("o.weight", DType::kF32, {3, 32}, values);
    const auto method = load(shape, source, fp8_in_flight_scheme());
    EXPECT_EQ(method.status().code(), Code::kCorrupt);
    EXPECT_THAT(method.status().message(), HasSubstr("o.weight: row 1 holds a NaN or an infinity"));
  }
}

}  // namespace
}  // namespace choral::quant
