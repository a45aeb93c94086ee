// For tests of matchers that go on and back again.
#pragma once

#include "text/grammar/sampled_answer_test.h"

namespace choral::text {

inline std::string likely_text(GrammarMatcher& matcher, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens(64);
  tokens.resize(static_cast<size_t>(matcher.likely(tokens)));
  std::string text;
  for (const int32_t token : tokens) text += tokenizer.token_bytes(token);
  return text;
}

// Answers are drawn; now and then the matcher goes up to kMostRollback tokens on and back, and then is what it was.
inline void expect_way_back(const Grammar& grammar, const Tokenizer& tokenizer, int rounds) {
  std::mt19937 random(4);
  for (int round = 0; round < rounds; ++round) {
    auto matcher = *grammar.matcher();
    for (int step = 0; step < 40; ++step) {
      const auto before = mask_of(*matcher, tokenizer);
      const bool complete = matcher->complete();
      const auto likely = likely_text(*matcher, tokenizer);
      const auto next = [&]() -> std::optional<int32_t> {
        auto ids = ids_in(mask_of(*matcher, tokenizer));
        std::erase(ids, tokenizer.eos_id().value());
        if (ids.empty()) return std::nullopt;
        return ids[random() % ids.size()];
      };
      int32_t on = 0;
      for (const auto most = static_cast<int32_t>(random() % (GrammarMatcher::kMostRollback + 1)); on < most; ++on) {
        const auto token = next();
        if (!token) break;
        ASSERT_TRUE(matcher->accept(*token));
      }
      matcher->rollback(on);
      ASSERT_EQ(mask_of(*matcher, tokenizer), before) << "behind " << step << " tokens and " << on << " on and back";
      ASSERT_EQ(matcher->complete(), complete);
      ASSERT_EQ(likely_text(*matcher, tokenizer), likely);
      const auto token = next();
      if (!token) break;
      ASSERT_TRUE(matcher->accept(*token));
    }
  }
}

}  // namespace choral::text
