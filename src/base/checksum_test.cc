#include "base/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace choral {
namespace {

std::vector<std::byte> pattern(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(ChecksumTest, EveryBitCounts) {
  auto bytes = pattern(200);  // whole rounds and a rest
  std::set<uint64_t> sums{checksum64(bytes)};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_TRUE(sums.insert(checksum64(bytes)).second) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

TEST(ChecksumTest, LengthCountsWhereBytesAreZero) {
  const std::vector<std::byte> zeros(300);
  std::set<uint64_t> sums;
  for (size_t count = 0; count <= zeros.size(); ++count) {
    EXPECT_TRUE(sums.insert(checksum64(std::span(zeros).first(count))).second) << count;
  }
}

TEST(ChecksumTest, OrderCounts) {
  const auto bytes = pattern(128);
  auto swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 64, swapped.begin() + 64);
  EXPECT_NE(checksum64(bytes), checksum64(swapped));
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 8);
  EXPECT_NE(checksum64(bytes), checksum64(swapped));
}

TEST(ChecksumTest, AddressDoesNotCount) {
  const auto bytes = pattern(130);
  std::vector<std::byte> moved(1);
  moved.insert(moved.end(), bytes.begin(), bytes.end());
  EXPECT_EQ(checksum64(bytes), checksum64(std::span(moved).subspan(1)));
}

// Files hold it.
TEST(ChecksumTest, StaysWhatItIs) {
  EXPECT_EQ(checksum64({}), 0xe937f85b05cbf088u);
  EXPECT_EQ(checksum64(pattern(1000)), 0x83bc80f6c99a01e0u);
}

}  // namespace
}  // namespace choral
