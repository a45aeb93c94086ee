#include "io/bounded_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_files.h"

namespace choral::io {
namespace {

using testing::bytes_of;
using testing::gguf_string;
using ::testing::HasSubstr;
using testing::le;

TEST(BoundedReader, ReadsLittleEndianNumbersInTurn) {
  const std::string bytes = std::string("\x01\x03\x02\x07\x06\x05\x04", 7) + le<uint64_t>(0x0102030405060708) + le(1.5f) +
                            le(-0.25) + gguf_string("text");
  BoundedReader reader(bytes_of(bytes), "f");
  EXPECT_EQ(*reader.u8("a"), 1);
  EXPECT_EQ(*reader.u16("a"), 0x0203);
  EXPECT_EQ(*reader.u32("a"), 0x04050607u);
  EXPECT_EQ(*reader.u64("a"), 0x0102030405060708u);
  EXPECT_EQ(*reader.f32("a"), 1.5f);
  EXPECT_EQ(*reader.f64("a"), -0.25);
  EXPECT_EQ(*reader.string(4, "a"), "text");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(BoundedReader, AFailedReadNamesItsPlaceAndMovesNothing) {
  const std::string bytes = "123456" + le<uint64_t>(100) + "short";
  BoundedReader reader(bytes_of(bytes), "some.gguf");
  ASSERT_TRUE(reader.skip(6, "start").ok());
  const auto text = reader.string(1000, "the key");
  EXPECT_EQ(text.status().code(), Code::kCorrupt);
  EXPECT_THAT(text.status().message(), HasSubstr("some.gguf: offset 14: the key needs 100 bytes, but only 5 are left"));
  EXPECT_EQ(reader.offset(), 6u);
  EXPECT_EQ(reader.string(99, "the key").status().code(), Code::kTooLarge);
  EXPECT_EQ(reader.offset(), 6u);
  EXPECT_FALSE(reader.take(14, "x").ok());
  EXPECT_FALSE(reader.skip(UINT64_MAX, "x").ok());
  EXPECT_EQ(reader.remaining(), 13u);
  EXPECT_TRUE(reader.take(13, "x").ok());
  EXPECT_FALSE(reader.u8("x").ok());
  EXPECT_TRUE(reader.take(0, "x").ok());
}

TEST(BoundedReader, AlignsFromTheStart) {
  const std::string bytes(70, '\0');
  BoundedReader reader(bytes_of(bytes), "f");
  EXPECT_TRUE(reader.align(32, "padding").ok());
  EXPECT_EQ(reader.offset(), 0u);
  ASSERT_TRUE(reader.skip(33, "x").ok());
  EXPECT_TRUE(reader.align(32, "padding").ok());
  EXPECT_EQ(reader.offset(), 64u);
  ASSERT_TRUE(reader.skip(1, "x").ok());
  EXPECT_FALSE(reader.align(32, "padding").ok()) << "beyond the end";
}

}  // namespace
}  // namespace choral::io
