#include "base/ascii.h"

#include <gtest/gtest.h>

namespace choral {
namespace {

TEST(Ascii, TrimsBothEnds) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Ascii, ReadsHex) {
  EXPECT_TRUE(is_lower_hex("09af"));
  EXPECT_FALSE(is_lower_hex("0F") || is_lower_hex("0g"));
  EXPECT_EQ(hex_digit('9') + hex_digit('a') + hex_digit('F'), 9 + 10 + 15);
  EXPECT_EQ(hex_digit('g') + hex_digit('/'), -2);
}

TEST(Ascii, LowersLettersAlone) { EXPECT_EQ(lower(std::string("AZaz@[\xC3\x84")), "azaz@[\xC3\x84"); }

}  // namespace
}  // namespace choral
