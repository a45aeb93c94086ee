#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "text/gguf_tokenizer.h"

namespace choral::text {
namespace {

using ::testing::HasSubstr;

Vocabulary vocabulary_of(const GgufTokenizerData& data) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    EXPECT_TRUE(vocabulary.add(data.tokens[id], static_cast<int64_t>(id)).ok());
  }
  EXPECT_TRUE(vocabulary.finish().ok());
  return vocabulary;
}

// The rule as it is said: every way to cut every token in two others.
std::vector<BpeMerge> plain_merges(const GgufTokenizerData& data, const Vocabulary& vocabulary) {
  std::vector<std::pair<float, BpeMerge>> found;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string_view token = data.tokens[id];
    if (data.token_types[id] != kNormal || token.size() > 256) continue;
    std::vector<BpeMerge> of_token;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;
      const BpeMerge merge{vocabulary.find(token.substr(0, cut)), vocabulary.find(token.substr(cut)), vocabulary.find(token)};
      if (merge.left >= 0 && merge.right >= 0) of_token.push_back(merge);
    }
    std::sort(of_token.begin(), of_token.end(),
              [](const auto& a, const auto& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
    for (const BpeMerge& merge : of_token) found.emplace_back(data.scores[id], merge);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<BpeMerge> merges;
  for (const auto& [score, merge] : found) merges.push_back(merge);
  return merges;
}

TEST(MergesByScore, AreAllWaysToCutATokenInTwoOthers) {
  std::mt19937 random(1);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  const std::vector<std::string> letters{"a", "b", "▁", "é", "日", "\xF0\x9F\x99\x82", std::string(1, '\0')};
  size_t merges = 0;
  for (int round = 0; round < 60; ++round) {
    GgufTokenizerData data;
    for (int i = draw(200); i >= 0; --i) {
      std::string token;
      for (int n = draw(round % 10 == 0 ? 100 : 5); n >= 0; --n) token += letters[draw(static_cast<int>(letters.size()))];
      if (draw(20) == 0) token.pop_back();  // ends within a character; some are empty
      data.tokens.push_back(token);         // some come twice
      data.token_types.push_back(draw(8) == 0 ? kControl : kNormal);
      data.scores.push_back(round % 2 == 0 ? static_cast<float>(-i) : static_cast<float>(draw(5)));
    }
    const Vocabulary vocabulary = vocabulary_of(data);
    const auto found = merges_by_score(data, vocabulary);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    ASSERT_EQ(*found, plain_merges(data, vocabulary)) << round;
    merges += found->size();
  }
  EXPECT_GT(merges, 1000);
}

TEST(MergesByScore, RefusesAScoreThatIsNoNumber) {
  GgufTokenizerData data;
  data.tokens = {"a", "b", "ab"};
  data.scores = {0, 0, std::nanf("")};
  EXPECT_THAT(merges_by_score(data, vocabulary_of(data)).status().message(), HasSubstr("the score of token 2 is not a number"));
}

}  // namespace
}  // namespace choral::text
