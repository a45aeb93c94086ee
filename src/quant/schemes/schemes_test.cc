// What schemes over integers multiply: each against its formula in double, on the operands it loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <random>

#include "platform/cpu_context_test.h"
#include "quant/scheme_linear.h"
#include "quant/weights_test.h"

namespace choral::quant {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 24, kCols = 96, kTokens = 3;

class SchemesTest : public ::testing::Test {
 protected:
  SchemesTest() {
    std::mt19937 random(11);
    for (auto& q : q_) q = static_cast<int8_t>(static_cast<int>(random() % 256) - 128);
    std::normal_distribution<float> normal;
    for (auto& v : x_) v = normal(random);
    for (auto& s : deq_) s = 0.001f * (1 + std::abs(normal(random)));
    for (auto& b : quant_bias_) b = static_cast<int32_t>(random() % 20000) - 10000;
  }

  template <class T>
  void add(const std::string& name, DType type, const Shape& shape, const std::vector<T>& values) {
    Tensor tensor = *Tensor::allocate(type, shape);
    std::copy(values.begin(), values.end(), tensor.as<T>().begin());
    source_.add(name, tensor.view());
    owned_.push_back(std::move(tensor));
  }

  Result<std::unique_ptr<LinearMethod>> load(SchemePtr scheme, const LinearShape& shape = kShape,
                                             const WeightRequest& request = {}) {
    auto method = make_scheme_linear_method({std::move(scheme), "a test"});
    ParameterSet parameters;
    method->create_weights(shape, parameters);
    CHORAL_RETURN_IF_ERROR(parameters.weight_loader(source_));
    CHORAL_RETURN_IF_ERROR(method->process_weights_after_loading(*cpu_, request, shape, parameters));
    return method;
  }
  std::vector<float> apply(const LinearMethod& method, int64_t rows = kRows) {
    std::vector<float> y(kTokens * rows);
    method.apply(*cpu_, {x_.data(), kTokens, kCols}, {}, {y.data(), kTokens, rows});
    return y;
  }

  static inline const LinearShape kShape{.in = kCols, .out = {kRows}, .shard_names = {"l"}, .bias = true};
  std::vector<int8_t> q_ = std::vector<int8_t>(kRows * kCols);
  std::vector<float> x_ = std::vector<float>(kTokens * kCols), deq_ = std::vector<float>(kRows);
  std::vector<int32_t> quant_bias_ = std::vector<int32_t>(kRows);
  platform::testing::CpuContext cpu_;
  testing::StoredWeights source_;
  std::deque<Tensor> owned_;
};

class ModelSlimStaticTest : public SchemesTest {
 protected:
  static constexpr float kScale = 0.02f;
  static constexpr int kOffset = -9;

  ModelSlimStaticTest() {
    add("l.weight", DType::kI8, {kRows, kCols}, q_);
    add("l.input_scale", DType::kF32, {1}, std::vector<float>{kScale});
    add("l.input_offset", DType::kF32, {1}, std::vector<float>{kOffset});
    add("l.deq_scale", DType::kF32, {kRows}, deq_);
    add("l.quant_bias", DType::kI32, {kRows}, quant_bias_);
    add("l.bias", DType::kF32, {kRows}, std::vector<float>(kRows, 1e6f));  // quant_bias holds it: whoever adds it is seen
  }

  // (Σ q_x q_w + quant_bias) · deq_scale.
  double expected(int64_t token, int64_t row) const {
    double sum = quant_bias_[row];
    for (int64_t k = 0; k < kCols; ++k) {
      sum += std::clamp(std::nearbyint(x_[token * kCols + k] / kScale) + kOffset, -128.0f, 127.0f) * q_[row * kCols + k];
    }
    return sum * deq_[row];
  }
  void expect_formula(const LinearMethod& method) {
    const auto y = apply(method);
    for (int64_t i = 0; i < kTokens * kRows; ++i) {
      const double want = expected(i / kRows, i % kRows);
      ASSERT_NEAR(y[i], want, 4e-7 * (std::abs(want) + 1e5 * deq_[i % kRows])) << i;
    }
  }
};

TEST_F(ModelSlimStaticTest, IsItsFormulaAndAddsNoBiasTwice) {
  const auto method = load(modelslim_static_scheme());
  ASSERT_TRUE(method.ok()) << method.status().message();
  expect_formula(**method);
  std::vector<int64_t> bits;  // as checkpoints of fp16 models have it
  for (const float s : deq_) bits.push_back(std::bit_cast<uint32_t>(s));
  add("l.deq_scale", DType::kI64, {kRows}, bits);
  expect_formula(**load(modelslim_static_scheme()));
}

TEST_F(ModelSlimStaticTest, WhatIsNoScaleIsNamed) {
  add("l.deq_scale", DType::kI64, {kRows}, std::vector<int64_t>(kRows, 0x7f800000));
  EXPECT_THAT(load(modelslim_static_scheme()).status().message(), HasSubstr("l.deq_scale holds 2139095040"));
  add("l.deq_scale", DType::kF32, {kRows}, deq_);
  add("l.input_offset", DType::kF32, {1}, std::vector<float>{0.5f});
  EXPECT_THAT(load(modelslim_static_scheme()).status().message(), HasSubstr("l.input_offset is 0.5"));
}

// Two planes carry 16 bits of x: the result is the dequantised product to a few parts in 60,000.
TEST_F(SchemesTest, WeightOnlySchemesKeepX) {
  std::vector<float> w(kRows * kCols);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (auto& v : w) v = normal(random);
  source_.add("l.weight", DType::kF32, {kRows, kCols}, w);
  source_.add("l.bias", DType::kF32, {kRows}, deq_);
  for (const int bits : {4, 8}) {
    for (const auto activations : {kernels::Activations::kFull, kernels::Activations::kInt8Blocks}) {
      const auto method = load(weight_only_scheme(rounded_floats(bits)), kShape, {.activations = activations});
      ASSERT_TRUE(method.ok()) << method.status().message();
      EXPECT_THAT((*method)->kernel_name(cpu_level()),
                  HasSubstr(activations == kernels::Activations::kFull ? "2 int8" : "1 int8"));
      const auto y = apply(**method);
      std::vector<float> row(kCols);
      for (int64_t j = 0; j < kRows; ++j) {
        ASSERT_TRUE((*method)->read_row(j, row).ok());
        for (int64_t t = 0; t < kTokens; ++t) {
          double sum = 0, size = 0;
          for (int64_t k = 0; k < kCols; ++k) {
            sum += double{row[k]} * x_[t * kCols + k];
            size += std::abs(row[k]) * 4.0;  // |x| < 4
          }
          const double most = activations == kernels::Activations::kFull ? size / 64516 : size / 254;
          ASSERT_NEAR(y[t * kRows + j], sum + deq_[j], most) << bits << ", " << j;
        }
      }
    }
  }
}

TEST_F(SchemesTest, W4A8RoundsEachRowOfXWithOneScale) {
  std::vector<float> w(kRows * kCols);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (auto& v : w) v = normal(random);
  source_.add("l.weight", DType::kF32, {kRows, kCols}, w);
  source_.add("l.bias", DType::kF32, {kRows}, deq_);
  const auto method = *load(dynamic_scheme(rounded_floats(4)));
  const auto y = apply(*method);
  std::vector<float> row(kCols);
  for (int64_t t = 0; t < kTokens; ++t) {
    float scale = 0;
    for (int64_t k = 0; k < kCols; ++k) scale = std::max(scale, std::abs(x_[t * kCols + k]) / 127.0f);
    for (int64_t j = 0; j < kRows; ++j) {
      ASSERT_TRUE(method->read_row(j, row).ok());
      double sum = 0, size = 0;
      for (int64_t k = 0; k < kCols; ++k) {
        const double product = double{row[k]} * std::nearbyint(x_[t * kCols + k] / scale) * scale;
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(y[t * kRows + j], sum + deq_[j], 1e-6 * size);
    }
  }
}

}  // namespace
}  // namespace choral::quant
