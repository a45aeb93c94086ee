#include "kernels/rotary/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/ref/rotary.h"

namespace choral::kernels {
namespace {

RotaryParams params(double theta) {
  RotaryParams p;
  p.head_dim = p.rotary_dim = 16;
  p.theta = theta;
  p.max_positions = 64;
  return p;
}

// Expected values: the formulas of transformers 4.57.6 modeling_rope_utils evaluated with numpy float32.
void expect_frequencies(const RotaryParams& p, const std::vector<float>& expected, double factor = 1.0) {
  const auto table = RotaryTable::make(p);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_EQ(table->inv_freq().size(), expected.size());
  // A power may be one unit off in either library, and theta's power in dynamic scaling is rounded to float.
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(table->inv_freq()[i], expected[i], 4e-7 * expected[i]) << "frequency " << i;
  EXPECT_NEAR(table->attention_factor(), factor, 1e-7);
}

TEST(RotaryTest, FrequenciesWithoutScaling) {
  const std::vector<float> plain = {1.0f,           0.316227764f,   0.100000001f,   0.0316227786f,
                                    0.00999999978f, 0.00316227786f, 0.00100000005f, 0.000316227786f};
  expect_frequencies(params(10000), plain);
  auto p = params(10000);
  p.frequency_divisors = {1, 2, 4, 8, 1, 1, 1, 32};
  auto divided = plain;
  for (size_t i = 0; i < divided.size(); ++i) divided[i] /= p.frequency_divisors[i];
  expect_frequencies(p, divided);
}

TEST(RotaryTest, LinearAndDynamicScaling) {
  auto p = params(10000);
  p.scaling = RotaryScaling::kLinear;
  p.factor = 4.0;
  expect_frequencies(
      p, {0.25f, 0.079056941f, 0.0250000004f, 0.00790569466f, 0.00249999994f, 0.000790569466f, 0.000250000012f, 7.90569466e-05f});
  p.scaling = RotaryScaling::kDynamic;
  p.factor = 2.0;
  p.original_max_position = 2048;
  p.max_positions = 2048;  // no longer than the original: no stretch
  expect_frequencies(
      p, {1.0f, 0.316227764f, 0.100000001f, 0.0316227786f, 0.00999999978f, 0.00316227786f, 0.00100000005f, 0.000316227786f});
  p.max_positions = 8192;
  expect_frequencies(
      p, {1.0f, 0.239481375f, 0.057351321f, 0.0137345716f, 0.00328917429f, 0.00078769587f, 0.000188638471f, 4.51753949e-05f});
}

TEST(RotaryTest, Llama3Scaling) {
  auto p = params(500000);
  p.scaling = RotaryScaling::kLlama3;
  p.factor = 8.0;
  p.original_max_position = 8192;
  expect_frequencies(
      p, {1.0f, 0.193922758f, 0.0376060307f, 0.00729266508f, 0.000524846022f, 3.42810235e-05f, 6.64787058e-06f, 1.28917316e-06f});
}

TEST(RotaryTest, YarnScaling) {
  auto p = params(1e6);
  p.scaling = RotaryScaling::kYarn;
  p.factor = 4.0;
  p.original_max_position = 32768;
  expect_frequencies(
      p, {1.0f, 0.177827939f, 0.0316227786f, 0.00421755994f, 0.000500000024f, 4.44569851e-05f, 7.90569356e-06f, 1.40585337e-06f},
      1.138629436111989);
  p = params(150000);
  p.scaling = RotaryScaling::kYarn;
  p.factor = 32.0;
  p.original_max_position = 4096;
  p.truncate = false;
  p.mscale = 0.707;
  p.mscale_all_dim = 1.0;
  const std::vector<float> expected = {1.0f,           0.225418001f,    0.05081328f,    0.00679495931f, 0.000456483918f,
                                       1.8188337e-05f, 4.09997847e-06f, 9.24208962e-07f};
  expect_frequencies(p, expected, 0.9245892963555604);
  p.mscale = 0.0;  // as absent
  expect_frequencies(p, expected, 0.1 * std::log(32.0) + 1.0);
  p.attention_factor = 1.5;
  expect_frequencies(p, expected, 1.5);
}

TEST(RotaryTest, LongRopeTakesOneListForTheWholeTable) {
  auto p = params(10000);
  p.scaling = RotaryScaling::kLongRope;
  p.factor = 32.0;
  p.original_max_position = 4096;
  p.short_factors = {1.0f, 1.05f, 1.1f, 1.2f, 1.3f, 1.5f, 1.7f, 2.0f};
  p.long_factors = {1, 1.5f, 2, 4, 8, 16, 32, 64};
  p.max_positions = 4096;
  expect_frequencies(
      p, {1.0f, 0.301169306f, 0.0909090936f, 0.0263523124f, 0.0076923077f, 0.00210818532f, 0.000588235271f, 0.000158113893f},
      1.1902380714238083);
  p.max_positions = 4097;
  expect_frequencies(
      p, {1.0f, 0.210818499f, 0.0500000007f, 0.00790569466f, 0.00124999997f, 0.000197642366f, 3.12500015e-05f, 4.94105916e-06f},
      1.1902380714238083);
  p.attention_factor = 1.25;
  p.long_attention_factor = 1.5;
  EXPECT_FLOAT_EQ(RotaryTable::make(p)->attention_factor(), 1.5F);
  p.max_positions = 4096;
  EXPECT_FLOAT_EQ(RotaryTable::make(p)->attention_factor(), 1.25F);
}

TEST(RotaryTest, TheTableRoundsTheAngleToFloatFirst) {
  auto p = params(10000);
  for (const int64_t positions : {5000, 140'000}) {  // by one thread and by several
    p.max_positions = positions;
    const auto table = *RotaryTable::make(p);
    for (int64_t position = 0; position < positions; position += position + 3 < positions ? 3 : 1) {
      for (int i = 0; i < 8; ++i) {
        const float angle = static_cast<float>(position) * table.inv_freq()[i];
        ASSERT_EQ(table.cos_row(position)[i], static_cast<float>(std::cos(static_cast<double>(angle)))) << position;
        ASSERT_EQ(table.sin_row(position)[i], static_cast<float>(std::sin(static_cast<double>(angle)))) << position;
      }
    }
  }
}

TEST(RotaryTest, AppliesToEveryHeadAndLeavesTheTail) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-2.0f, 2.0f);
  ThreadPool pool(2);
  Arena arena;
  for (const int64_t rotary_dim : {2, 6, 14, 16, 18, 30, 32, 34, 64}) {
    for (const bool interleaved : {false, true}) {
      RotaryParams p = params(10000);
      p.head_dim = 66;
      p.rotary_dim = rotary_dim;
      p.interleaved = interleaved;
      const auto table = *RotaryTable::make(p);
      constexpr int64_t kTokens = 40, kHeads = 3, kKvHeads = 2, kStride = 400;
      std::vector<float> q(kTokens * kStride), k(kTokens * kStride);
      for (float& x : q) x = value(random);
      for (float& x : k) x = value(random);
      std::vector<int32_t> positions(kTokens);
      for (int32_t& t : positions) t = static_cast<int32_t>(random() % 64);
      positions[3] = 0;
      for (const CpuLevel level : usable_cpu_levels()) {
        auto q_got = q, k_got = k;
        apply_rotary({pool, level, arena}, table, positions, {q_got.data(), kTokens, kHeads * 66, kStride}, kHeads,
                     {k_got.data(), kTokens, kKvHeads * 66, kStride}, kKvHeads);
        const auto compare = [&](const std::vector<float>& before, const std::vector<float>& got, int64_t heads) {
          auto expected = before;
          for (int64_t t = 0; t < kTokens; ++t) {
            const auto half = static_cast<size_t>(rotary_dim / 2);
            for (int64_t h = 0; h < heads; ++h) {
              ref::rotate_head({expected.data() + t * kStride + h * 66, 66}, {table.cos_row(positions[t]), half},
                               {table.sin_row(positions[t]), half}, interleaved);
            }
          }
          for (size_t i = 0; i < got.size(); ++i) {
            const int64_t column = static_cast<int64_t>(i) % kStride;
            const bool rotated = column < heads * 66 && column % 66 < rotary_dim;
            // Two products of terms up to 2 and a sum up to 4.
            ASSERT_NEAR(got[i], expected[i], rotated ? 0x1p-24 * 8.0 : 0.0)
                << cpu_level_name(level) << ", rotary_dim " << rotary_dim << ", interleaved " << interleaved << ", element " << i;
          }
        };
        compare(q, q_got, kHeads);
        compare(k, k_got, kKvHeads);
      }
    }
  }
}

TEST(RotaryTest, BadParametersAreRefusedWithAReason) {
  const auto code = [](const RotaryParams& p) { return RotaryTable::make(p).status().code(); };
  auto p = params(10000);
  p.rotary_dim = 15;
  EXPECT_EQ(code(p), Code::kInvalidArgument);
  p = params(10000);
  p.max_positions = RotaryTable::kMaxPositions + 1;
  EXPECT_EQ(code(p), Code::kTooLarge);
  p = params(-1);
  EXPECT_EQ(code(p), Code::kInvalidArgument);
  p = params(10000);
  p.frequency_divisors = {1, 2};
  EXPECT_EQ(code(p), Code::kInvalidArgument);
  p.frequency_divisors.assign(8, 0.0f);
  EXPECT_EQ(code(p), Code::kInvalidArgument);
  p = params(10000);
  p.scaling = RotaryScaling::kYarn;
  EXPECT_EQ(code(p), Code::kInvalidArgument) << "no original_max_position";
  p.scaling = RotaryScaling::kLongRope;
  p.original_max_position = 4096;
  EXPECT_EQ(code(p), Code::kInvalidArgument) << "no factors";
}

}  // namespace
}  // namespace choral::kernels
