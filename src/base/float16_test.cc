#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace choral {
namespace {

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(value))));
    } else {
      ASSERT_EQ(to_float16(value).bits, bits);
    }
  }
}

TEST(Float16, KnownValues) {
  EXPECT_EQ(to_float(Float16{0x3C00}), 1.0f);
  EXPECT_EQ(to_float(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(Float16{0x7BFF}), 65504.0f);
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7C00);  // rounds to infinity
  EXPECT_EQ(to_float16(0x1p-25f).bits, 0);       // a tie, to even
  EXPECT_EQ(to_float16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
}

TEST(Float16, RoundsToNearestEven) {
  // Halfway between two neighbouring halves goes to the even one, anything beyond to the nearer one.
  for (uint16_t bits = 0x0400; bits < 0x7BFF; ++bits) {
    const double low = to_float(Float16{bits}), high = to_float(Float16{static_cast<uint16_t>(bits + 1)});
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(to_float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(to_float16(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(to_float16(std::nextafter(middle, 0.0f)).bits, bits);
  }
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNan) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const uint32_t middle = bits << 16 | 0x8000u;
    ASSERT_EQ(to_bfloat16(std::bit_cast<float>(middle)).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(to_bfloat16(std::bit_cast<float>(middle - 1)).bits, bits);
    ASSERT_EQ(to_bfloat16(std::bit_cast<float>(bits << 16)).bits, bits);
  }
  // A NaN whose payload stands only in the low bits must not become an infinity.
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace choral
