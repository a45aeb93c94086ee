// Every way integers stand in a checkpoint, packed here as its publisher describes it, is the same weight again. Those of
// compressed-tensors are held to the package itself (formats/packed_layers_test.cc).
#include "quant/integers/integer_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <random>

#include "platform/cpu_context_test.h"
#include "quant/integers/bit_fields.h"
#include "quant/scheme_linear.h"
#include "quant/weights_test.h"

namespace choral::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 16, kCols = 64, kGroup = 32, kGroups = kCols / kGroup;

class IntegerStorageTest : public ::testing::Test {
 protected:
  IntegerStorageTest() {
    std::mt19937 random(5);
    for (auto& q : q_) q = static_cast<int>(random() % 16);
    for (auto& z : z_) z = 1 + static_cast<int>(random() % 15);
    for (auto& s : scales_) s = std::ldexp(1.0f + static_cast<float>(random() % 64) / 64, -4);  // a float16
  }

  template <class T>
  void add(const std::string& name, DType type, const Shape& shape, const std::vector<T>& values) {
    Tensor tensor = *Tensor::allocate(type, shape);
    std::copy(values.begin(), values.end(), tensor.as<T>().begin());
    source_.add(name, tensor.view());
    owned_.push_back(std::move(tensor));
  }
  void add_floats(const std::string& name, const Shape& shape, const std::vector<float>& values, DType type = DType::kF16) {
    source_.add(name, type, shape, values);
  }

  Result<IntegerWeight> read(const IntegerStorage& storage, const LinearShape& shape) {
    ParameterSet parameters;
    storage.create_weights(shape, parameters);
    CHORAL_RETURN_IF_ERROR(parameters.weight_loader(source_));
    return storage.read(*cpu_, shape, parameters, 0);
  }
  Result<IntegerWeight> read(const IntegerStorage& storage) { return read(storage, kShape); }

  static float value(const IntegerWeight& weight, int64_t row, int64_t col) {
    const int64_t group = weight.group_size == 0 ? 0 : col / weight.group_size;
    const int64_t groups = std::ssize(weight.scales) / kRows;
    const int q = reinterpret_cast<const int8_t*>(weight.q.tensor.row(row))[col];
    const int z = weight.zeros.empty() ? 0 : weight.zeros[row * groups + group];
    return weight.scales[row * groups + group] * static_cast<float>(q - z);
  }
  // Column j of the weight is x's k_order[j].
  void expect_weight(const IntegerWeight& weight, const std::vector<float>& w) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < kCols; ++j) {
        const int64_t k = weight.k_order.empty() ? j : weight.k_order[j];
        ASSERT_EQ(value(weight, r, j), w[r * kCols + k]) << r << ", " << k;
      }
    }
  }
  // w = (q − z) · s, group of k by `group_of`.
  template <class GroupOf>
  std::vector<float> expected(GroupOf group_of) const {
    std::vector<float> w(kRows * kCols);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t k = 0; k < kCols; ++k) {
        const int64_t g = r * kGroups + group_of(k);
        w[r * kCols + k] = static_cast<float>(q_[r * kCols + k] - z_[g]) * scales_[g];
      }
    }
    return w;
  }
  std::vector<float> expected() const {
    return expected([](int64_t k) { return k / kGroup; });
  }
  // [rows, groups] as [groups, rows].
  template <class T>
  static std::vector<T> columns(const std::vector<T>& rows) {
    std::vector<T> out(rows.size());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t g = 0; g < kGroups; ++g) out[g * kRows + r] = rows[r * kGroups + g];
    }
    return out;
  }

  void add_gptq(int less, std::vector<int32_t> group_of = {}) {
    std::vector<int32_t> qweight(kCols / 8 * kRows), qzeros(kGroups * kRows / 8);
    for (int64_t k = 0; k < kCols; ++k) {
      for (int64_t n = 0; n < kRows; ++n)
        qweight[k / 8 * kRows + n] |= static_cast<int32_t>(uint32_t(q_[n * kCols + k]) << k % 8 * 4);
    }
    for (int64_t g = 0; g < kGroups; ++g) {
      for (int64_t n = 0; n < kRows; ++n) {
        qzeros[(g * kRows + n) / 8] |= static_cast<int32_t>(uint32_t(z_[n * kGroups + g] - less) << n % 8 * 4);
      }
    }
    add("l.qweight", DType::kI32, {kCols / 8, kRows}, qweight);
    add("l.qzeros", DType::kI32, {kGroups, kRows / 8}, qzeros);
    add_floats("l.scales", {kGroups, kRows}, columns(scales_));
    if (!group_of.empty()) add("l.g_idx", DType::kI32, {kCols}, group_of);
  }

  static inline const LinearShape kShape{.in = kCols, .out = {kRows}, .shard_names = {"l"}};
  static inline const IntegerFormat kFour{.bits = 4, .group_size = kGroup, .symmetric = false, .g_idx = true};
  std::vector<int> q_ = std::vector<int>(kRows * kCols), z_ = std::vector<int>(kRows * kGroups);
  std::vector<float> scales_ = std::vector<float>(kRows * kGroups);
  platform::testing::CpuContext cpu_;
  testing::StoredWeights source_;
  std::deque<Tensor> owned_;
};

TEST(BitFields, StandAsPublished) {
  const uint32_t words[] = {0x76543210, 0xfedcba98};
  const auto* bytes = reinterpret_cast<const std::byte*>(words);
  std::vector<int8_t> out(16);
  read_fields(bytes, 4, 16, 4, FieldLayout::kDense, out.data(), 1);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], i - 8);
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    for (const auto layout : {FieldLayout::kDense, FieldLayout::kWhole}) {
      constexpr int64_t kCount = 67;
      std::vector<uint32_t> packed(field_words(kCount, bits, layout));
      std::vector<int> values;
      for (int64_t i = 0; i < kCount; ++i) {
        values.push_back(static_cast<int>((i * 37 + 11) % (1 << bits)));
        const int64_t bit = layout == FieldLayout::kDense ? i * bits : i / (32 / bits) * 32 + i % (32 / bits) * bits;
        for (int64_t b = 0; b < bits; ++b) {
          packed[(bit + b) / 32] |= (uint32_t(values.back()) >> b & 1u) << (bit + b) % 32;
        }
      }
      std::vector<int8_t> read(kCount);
      read_fields(reinterpret_cast<const std::byte*>(packed.data()), 4, kCount, bits, layout, read.data(), 1);
      for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(read[i] + (1 << (bits - 1)), values[i]) << bits << ", " << i;
    }
  }
}

TEST_F(IntegerStorageTest, AwqInterleavesEightChannels) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble i holds channel kOrder[i]
  std::vector<int32_t> qweight(kCols * kRows / 8), qzeros(kGroups * kRows / 8);
  for (int64_t c = 0; c < kRows / 8; ++c) {
    for (int i = 0; i < 8; ++i) {
      const int64_t n = c * 8 + kOrder[i];
      for (int64_t k = 0; k < kCols; ++k)
        qweight[k * kRows / 8 + c] |= static_cast<int32_t>(uint32_t(q_[n * kCols + k]) << 4 * i);
      for (int64_t g = 0; g < kGroups; ++g)
        qzeros[g * kRows / 8 + c] |= static_cast<int32_t>(uint32_t(z_[n * kGroups + g]) << 4 * i);
    }
  }
  add("l.qweight", DType::kI32, {kCols, kRows / 8}, qweight);
  add("l.qzeros", DType::kI32, {kGroups, kRows / 8}, qzeros);
  add_floats("l.scales", {kGroups, kRows}, columns(scales_));
  const auto weight = read(*awq_columns({.bits = 4, .group_size = kGroup, .symmetric = false}));
  ASSERT_TRUE(weight.ok()) << weight.status().message();
  expect_weight(*weight, expected());
}

TEST_F(IntegerStorageTest, GptqStoresZeroPointsLessOneInItsFirstVersion) {
  add_gptq(/*less=*/1);
  expect_weight(*read(*gptq_columns(kFour, GptqVersion::k1)), expected());
  add_gptq(/*less=*/0);
  expect_weight(*read(*gptq_columns(kFour, GptqVersion::k2)), expected());
}

TEST_F(IntegerStorageTest, GptqOfVersionOneWithEveryZeroInTheMiddleIsReadAsVersionTwo) {
  std::fill(z_.begin(), z_.end(), 8);
  add_gptq(/*less=*/0);
  IntegerFormat symmetric = kFour;
  symmetric.symmetric = true;
  const auto weight = *read(*gptq_columns(symmetric, GptqVersion::k1));
  EXPECT_TRUE(weight.zeros.empty());
  expect_weight(weight, expected());
  add_gptq(/*less=*/1);  // as version 1 writes it
  expect_weight(*read(*gptq_columns(symmetric, GptqVersion::k1)), expected());
}

TEST_F(IntegerStorageTest, GptqColumnsOfOneGroupAreBroughtTogether) {
  std::vector<int32_t> group_of(kCols);
  for (int64_t k = 0; k < kCols; ++k) group_of[k] = static_cast<int32_t>((k * 7 + 3) % 2);
  add_gptq(1, group_of);
  const auto weight = *read(*gptq_columns(kFour, GptqVersion::k1));
  EXPECT_FALSE(weight.k_order.empty());
  expect_weight(weight, expected([&](int64_t k) { return group_of[k]; }));

  group_of[0] = group_of[1];  // 33 and 31
  add_gptq(1, group_of);
  EXPECT_THAT(read(*gptq_columns(kFour, GptqVersion::k1)).status().message(), HasSubstr("groups of unequal size"));
  group_of[0] = 2;
  add_gptq(1, group_of);
  EXPECT_THAT(read(*gptq_columns(kFour, GptqVersion::k1)).status().message(), HasSubstr("l.g_idx names group 2, there are 2"));
}

TEST_F(IntegerStorageTest, GptqColumnsInAnotherOrderMeetTheirOwnX) {
  std::vector<int32_t> group_of(kCols);
  for (int64_t k = 0; k < kCols; ++k) group_of[k] = static_cast<int32_t>((k * 7 + 3) % 2);
  add_gptq(1, group_of);
  const auto method = make_scheme_linear_method({weight_only_scheme(gptq_columns(kFour, GptqVersion::k1)), "a test"});
  ParameterSet parameters;
  method->create_weights(kShape, parameters);
  ASSERT_TRUE(parameters.weight_loader(source_).ok());
  ASSERT_TRUE(method->process_weights_after_loading(*cpu_, {}, kShape, parameters).ok());
  EXPECT_THAT(method->kernel_name(cpu_level()), HasSubstr("x gathered"));
  const auto w = expected([&](int64_t k) { return group_of[k]; });
  constexpr int64_t kTokens = 3;
  std::vector<float> x(kTokens * kCols), y(kTokens * kRows), row(kCols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) - 50.0f;
  method->apply(*cpu_, {x.data(), kTokens, kCols}, {}, {y.data(), kTokens, kRows});
  for (int64_t r = 0; r < kRows; ++r) {
    ASSERT_TRUE(method->read_row(r, row).ok());
    for (int64_t k = 0; k < kCols; ++k) ASSERT_EQ(row[k], w[r * kCols + k]);
    for (int64_t t = 0; t < kTokens; ++t) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < kCols; ++k) {
        sum += double{w[r * kCols + k]} * x[t * kCols + k];
        size += std::abs(w[r * kCols + k]) * 50.0;
      }
      ASSERT_NEAR(y[t * kRows + r], sum, size / 64516) << t << ", " << r;
    }
  }
}

TEST_F(IntegerStorageTest, GptqBiasesThatAModelLacksMustBeZero) {
  add_gptq(1);
  add_floats("l.bias", {kRows}, std::vector<float>(kRows));
  EXPECT_TRUE(read(*gptq_columns(kFour, GptqVersion::k1)).ok());
  add_floats("l.bias", {kRows}, std::vector<float>(kRows, 0.5f));
  EXPECT_THAT(read(*gptq_columns(kFour, GptqVersion::k1)).status().message(), HasSubstr("l.bias is not zero"));
}

TEST_F(IntegerStorageTest, ModelSlimPairsHoldTheEvenChannelInTheLowNibble) {
  std::vector<int8_t> pairs(kRows / 2 * kCols);
  std::vector<float> scale(kRows), bias(kRows);
  std::vector<float> w(kRows * kCols);
  for (int64_t r = 0; r < kRows; ++r) {
    scale[r] = scales_[r];
    for (int64_t k = 0; k < kCols; ++k) {
      const int q = q_[r * kCols + k] - 8;
      pairs[r / 2 * kCols + k] = static_cast<int8_t>(pairs[r / 2 * kCols + k] | (q & 15) << (r % 2 == 0 ? 0 : 4));
      w[r * kCols + k] = static_cast<float>(q) * scale[r];
      bias[r] += 8 * w[r * kCols + k];
    }
  }
  add("l.weight", DType::kI8, {kRows / 2, kCols}, pairs);
  add_floats("l.weight_scale", {kRows, 1}, scale, DType::kF32);
  add_floats("l.weight_offset", {kRows, 1}, std::vector<float>(kRows), DType::kF32);
  add_floats("l.scale_bias", {kRows, 1}, bias, DType::kF32);
  const auto storage = modelslim_rows({.bits = 4}, ModelSlimBytes::kPair);
  const auto weight = read(*storage);
  ASSERT_TRUE(weight.ok()) << weight.status().message();
  expect_weight(*weight, w);
  bias[3] += 1;
  add_floats("l.scale_bias", {kRows, 1}, bias, DType::kF32);
  EXPECT_THAT(read(*storage).status().message(), HasSubstr("for channel 3"));
}

TEST_F(IntegerStorageTest, ModelSlimGroupsHaveASecondScaleAndOffsetsAreAdded) {
  std::vector<int8_t> bytes(kRows * kCols);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int8_t>(q_[i] - 8);
  add("l.weight", DType::kI8, {kRows, kCols}, bytes);
  const std::vector<float> first(kRows, 0.5f);
  add_floats("l.weight_scale", {kRows, 1}, first, DType::kF32);
  add_floats("l.weight_scale_second", {kRows, kGroups}, scales_, DType::kF32);
  std::vector<float> w(bytes.size());
  for (int64_t i = 0; i < std::ssize(w); ++i) w[i] = static_cast<float>(bytes[i]) * 0.5f * scales_[i / kGroup];
  expect_weight(*read(*modelslim_rows({.bits = 4, .group_size = kGroup}, ModelSlimBytes::kOne)), w);

  std::vector<float> offsets(kRows);
  std::iota(offsets.begin(), offsets.end(), -3.0f);
  add_floats("l.weight_offset", {kRows, 1}, offsets, DType::kF32);
  for (int64_t i = 0; i < std::ssize(w); ++i) w[i] = (static_cast<float>(bytes[i]) + offsets[i / kCols]) * 0.5f;
  expect_weight(*read(*modelslim_rows({.bits = 8}, ModelSlimBytes::kOne)), w);
  EXPECT_THAT(read(*modelslim_rows({.bits = 4, .group_size = kGroup}, ModelSlimBytes::kOne)).status().message(),
              HasSubstr("l.weight_offset is not zero"));
}

TEST_F(IntegerStorageTest, FloatsAreRoundedToFourBitsByTheirGroup) {
  std::vector<float> w(kRows * kCols);
  std::mt19937 random(3);
  for (auto& v : w) v = std::normal_distribution<float>()(random);
  std::fill_n(w.begin(), kCols, 0.0f);
  add_floats("l.weight", {kRows, kCols}, w, DType::kF32);
  const auto weight = *read(*rounded_floats(4));
  ASSERT_EQ(weight.group_size, kGroup);
  for (int64_t at = 0; at < kRows * kCols; at += kGroup) {
    const auto group = std::span(w).subspan(at, kGroup);
    const float far = *std::max_element(group.begin(), group.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float scale = weight.scales[at / kGroup];
    ASSERT_EQ(scale, far / -8.0f);
    const auto* q = reinterpret_cast<const int8_t*>(weight.q.tensor.data) + at;
    for (int64_t k = 0; k < kGroup; ++k) {
      ASSERT_EQ(q[k], scale == 0 ? 0 : std::clamp(std::nearbyint(group[k] / scale), -8.0f, 7.0f)) << at + k;
    }
  }
}

TEST_F(IntegerStorageTest, AScaleThatIsNoNumberIsNamed) {
  add_gptq(1);
  scales_[5] = std::numeric_limits<float>::infinity();
  add_floats("l.scales", {kGroups, kRows}, columns(scales_));
  EXPECT_THAT(read(*gptq_columns(kFour, GptqVersion::k1)).status().message(), HasSubstr("l.scales holds a NaN or an infinity"));
}

}  // namespace
}  // namespace choral::quant
