#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace choral {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string hex_of(std::string_view text) { return to_hex(sha256(bytes_of(text))); }

// FIPS 180-4's examples.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, TakesAMessageInPiecesAndAnotherAfterReset) {
  Sha256 hash;
  hash.update(bytes_of("something else"));
  hash.finish();
  hash.reset();
  for (const char* piece : {"a", "", "bc"}) hash.update(bytes_of(piece));
  EXPECT_EQ(to_hex(hash.finish()), hex_of("abc"));
  hash.reset();
  hash.update_value(uint16_t{0x6261});  // "ab", as a little machine has it
  hash.update(bytes_of("c"));
  EXPECT_EQ(to_hex(hash.finish()), hex_of("abc"));
}

}  // namespace
}  // namespace choral
