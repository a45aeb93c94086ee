#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace choral {
namespace {

// The definition: (−1)^sign · 2^(e − 7) · (1 + m / 8), and m · 2^-9 where e = 0.
float value_of(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Float8E4M3, EveryCodeIsItsNumberAndComesBack) {
  for (int code = 0; code < 256; ++code) {
    const Float8E4M3 x{static_cast<uint8_t>(code)};
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(is_nan(x) && std::isnan(to_float(x)));
    } else {
      EXPECT_FALSE(is_nan(x));
      EXPECT_EQ(std::bit_cast<uint32_t>(to_float(x)), std::bit_cast<uint32_t>(value_of(code))) << code;
    }
    EXPECT_EQ(to_float8_e4m3(to_float(x)).bits, x.bits);
  }
  EXPECT_EQ(to_float(Float8E4M3{0x7E}), kFloat8E4M3Max);
}

TEST(Float8E4M3, RoundsToNearestEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = value_of(code), high = value_of(code + 1), middle = (low + high) / 2;  // exact
    const int even = code % 2 == 0 ? code : code + 1;
    for (const int sign : {0, 0x80}) {
      const auto rounded = [&](float x) { return static_cast<int>(to_float8_e4m3(sign != 0 ? -x : x).bits); };
      EXPECT_EQ(rounded(middle), even | sign) << code;
      EXPECT_EQ(rounded(std::nextafter(middle, 0.0f)), code | sign) << code;
      EXPECT_EQ(rounded(std::nextafter(middle, 1e9f)), (code + 1) | sign) << code;
    }
  }
}

TEST(Float8E4M3, WhatIsTooLargeIsTheLargest) {
  for (const float x : {448.0f, 449.0f, 464.0f, 465.0f, 480.0f, 512.0f, 1e38f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(to_float8_e4m3(x).bits, 0x7E) << x;
    EXPECT_EQ(to_float8_e4m3(-x).bits, 0xFE) << x;
  }
  EXPECT_TRUE(is_nan(to_float8_e4m3(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(to_float8_e4m3(0x1p-149f).bits, 0);
  EXPECT_EQ(to_float8_e4m3(-0x1p-149f).bits, 0x80);
}

TEST(Float8E8M0, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(to_float(Float8E8M0{static_cast<uint8_t>(code)}), std::ldexp(1.0f, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(to_float(Float8E8M0{0xFF})));
}

}  // namespace
}  // namespace choral
