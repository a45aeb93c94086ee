#include "base/size_text.h"

#include <gtest/gtest.h>

namespace choral {
namespace {

TEST(SizeText, UnitsArePowersOf1024) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1023), "1023 bytes");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(size_text(0x1p54), "16384.0 TiB") << "the last unit goes on";
}

}  // namespace
}  // namespace choral
