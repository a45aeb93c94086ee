#include "quant/written/fixed_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace choral::quant {
namespace {

using ::testing::HasSubstr;

InputRange range_of(std::vector<float> x) {
  InputRange range;
  range.take(x);
  return range;
}

TEST(FixedInput, TheFarthestNumberIsTheLastStep) {
  const auto input = *fixed_input(range_of({0.5f, -3.0f, 2.0f}), InputOffset::kNone, "a");
  EXPECT_EQ(input.scale, 3.0f / 127.0f);
  EXPECT_EQ(input.offset, 0);
  EXPECT_EQ(fixed_input(range_of({3.0f, -1.0f}), InputOffset::kNone, "a")->scale, 3.0f / 127.0f);
}

// With an offset all 256 steps lie in the range, and 0 is one of them.
TEST(FixedInput, AnOffsetUsesTheWholeRange) {
  const struct {
    float least, greatest, from, to;
  } cases[] = {{-1, 3, -1, 3}, {-3, 1, -3, 1}, {-2, 2, -2, 2}, {1, 3, 0, 3}, {-3, -1, -3, 0}, {-0.001f, 5, -0.001f, 5}};
  for (const auto& c : cases) {
    const auto input = *fixed_input(range_of({c.least, c.greatest}), InputOffset::kOfRange, "a");
    EXPECT_FLOAT_EQ(input.scale, (c.to - c.from) / 255.0f);
    const auto code = [&](float x) { return std::rint(x / input.scale) + static_cast<float>(input.offset); };
    EXPECT_GE(code(c.from), -128.5f);
    EXPECT_LE(code(c.to), 127.5f);
    EXPECT_NEAR(code(c.from), -128.0f, 1.0f);
    EXPECT_NEAR(code(c.to), 127.0f, 1.0f);
  }
}

TEST(FixedInput, RangesJoin) {
  auto range = range_of({1.0f, 2.0f});
  range.join(range_of({-4.0f}));
  EXPECT_EQ(range.least, -4.0f);
  EXPECT_EQ(range.greatest, 2.0f);
  EXPECT_TRUE(range.finite);
  range.join(range_of({NAN}));
  EXPECT_FALSE(range.finite);
}

TEST(FixedInput, WhatGivesNoScaleIsNamed) {
  const auto message = [](const InputRange& range) {
    const auto symmetric = fixed_input(range, InputOffset::kNone, "layers.1.mlp.down_proj").status();
    const auto whole = fixed_input(range, InputOffset::kOfRange, "layers.1.mlp.down_proj").status();
    EXPECT_EQ(symmetric.message(), whole.message());
    EXPECT_THAT(symmetric.message(), HasSubstr("layers.1.mlp.down_proj was given "));
    return symmetric.message();
  };
  EXPECT_THAT(message({}), HasSubstr("nothing while the calibration text was read; let it stay float with --ignore"));
  EXPECT_THAT(message(range_of({0.0f, 0.0f})), HasSubstr("no number but 0"));
  EXPECT_THAT(message(range_of({1.0f, NAN})), HasSubstr("a NaN or an infinity"));
  EXPECT_THAT(message(range_of({1.0f, -INFINITY})), HasSubstr("a NaN or an infinity"));
}

}  // namespace
}  // namespace choral::quant
