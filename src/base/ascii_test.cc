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

TEST(Ascii, LowersLettersAlone) { EXPECT_EQ(lower(std::string("AZaz@[\xC3\x84")), "azaz@[\xC3\x84"); }

}  // namespace
}  // namespace choral
