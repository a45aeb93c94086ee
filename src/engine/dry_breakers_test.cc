#include "engine/dry_breakers.h"

#include <gmock/gmock.h>

#include "engine/bytes_tokenizer_test.h"

namespace choral::engine {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kFirstByte = 1;  // of the tokens
constexpr int32_t kFirstMore = 257;

// "7: " for a token alone, "7+8: " with what must follow.
std::vector<std::string> found(const std::vector<std::string>& texts, const std::vector<std::string>& more = {}) {
  DryBreakers breakers;
  const auto list = breakers.of(tokenizer_of_bytes(more), texts);
  EXPECT_TRUE(list.ok()) << list.status().to_string();
  std::vector<std::string> out;
  for (const auto& breaker : *list) {
    out.push_back(std::to_string(breaker.token));
    for (const int32_t token : breaker.rest) out.back() += "+" + std::to_string(token);
  }
  return out;
}

std::string byte(char c) { return std::to_string(kFirstByte + static_cast<unsigned char>(c)); }
std::string more(int i) { return std::to_string(kFirstMore + i); }

TEST(DryBreakers, AreTheTokensThatHoldThem) {
  EXPECT_THAT(found({"\n"}), ElementsAre(byte('\n')));
  EXPECT_THAT(found({"x"}, {"axb", "ab"}), ElementsAre(byte('x'), more(0)));
  EXPECT_THAT(found({}), ElementsAre());
  EXPECT_THAT(found({""}), ElementsAre()) << "as in llama.cpp, no text is passed over";
}

TEST(DryBreakers, AreTokensThatBeginThemWithWhatFollows) {
  EXPECT_THAT(found({"xyz"}), ElementsAre(byte('x') + "+" + byte('y') + "+" + byte('z')));
  EXPECT_THAT(found({"xyz"}, {"axy"}), ElementsAre(byte('x') + "+" + byte('y') + "+" + byte('z'), more(0) + "+" + byte('z')));
}

TEST(DryBreakers, AListIsLookedForOnce) {
  DryBreakers breakers;
  const auto tokenizer = tokenizer_of_bytes();
  const auto first = *breakers.of(tokenizer, {":"});
  EXPECT_EQ(first.data(), breakers.of(tokenizer, {":"})->data());
  EXPECT_NE(first.data(), breakers.of(tokenizer, {"*"})->data());
  EXPECT_NE(first.data(), breakers.of(tokenizer_of_bytes(), {":"})->data()) << "another tokenizer's";
}

TEST(DryBreakers, NeedATokenizerWhereThereAreSome) {
  DryBreakers breakers;
  EXPECT_EQ(breakers.of(nullptr, {":"}).status().code(), Code::kUnsupported);
  EXPECT_TRUE(breakers.of(nullptr, {}).ok());
}

}  // namespace
}  // namespace choral::engine
