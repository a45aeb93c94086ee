// Grammars whose words a test knows: a language of sentences, what it allows at each place, and a hand in what its matchers do.
// Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "choral/llm.h"
#include "engine/tiny_model_test.h"
#include "text/grammar/grammar.h"

namespace choral::engine {

inline constexpr int32_t kEos = 3989, kOtherEos = 3997;

// A language of sentences: at each place one of some tokens; after `least` of them the answer may end, at `most` it must.
struct Language {
  int least = 0, most = 0;
  int32_t first_id = 100, ids = 7;  // place p allows first_id + (p % 2) * 50 … + ids - 1
  int refuses_at = -1;              // accept() says no there, whatever the mask said
  int dead_at = -1;                 // no token may follow there
  bool is_bounded = true;

  int32_t first_at(int place) const { return first_id + place % 2 * 50; }
  bool allows(int place, int32_t token) const {
    const int32_t begin = first_at(place);
    return place < most && place != dead_at && token >= begin && token < begin + ids;
  }
};

inline std::atomic<int64_t> tokens_accepted = 0, masks_filled = 0;
// Called with its place by each matcher that is not bounded before it accepts a token, on whichever thread; set before the engine
// starts and reset behind its end.
inline std::function<void(int place)> before_accept;

class LanguageMatcher : public text::GrammarMatcher {
 public:
  explicit LanguageMatcher(const Language& language) : language_(language) {}
  void fill_mask(std::span<uint32_t> words) override {
    ++masks_filled;
    std::fill(words.begin(), words.end(), 0U);
    const auto vocab = static_cast<int32_t>(words.size() * 32);
    for (int32_t id = 0; id < vocab; ++id) {
      const bool is_end = complete() && (id == kEos || id == kOtherEos);
      if (is_end || language_.allows(place_, id)) words[id / 32] |= 1U << (id % 32);
    }
  }
  bool accept(int32_t token) override {
    if (!is_bounded() && before_accept) before_accept(place_);
    if (!language_.allows(place_, token) || place_ == language_.refuses_at) return false;
    ++place_;
    ++tokens_accepted;
    return true;
  }
  void rollback(int32_t tokens) override {
    place_ -= tokens;
    tokens_accepted -= tokens;
  }
  // The first one that it allows, as long as there is one.
  int32_t likely(std::span<int32_t> tokens) override {
    int32_t count = 0;
    for (; count < std::ssize(tokens) && language_.allows(place_ + count, language_.first_at(place_ + count)); ++count)
      tokens[static_cast<size_t>(count)] = language_.first_at(place_ + count);
    return count;
  }
  bool complete() const override { return place_ >= language_.least; }
  bool is_bounded() const override { return language_.is_bounded; }

 private:
  Language language_;
  int place_ = 0;
};

class LanguageGrammar : public text::Grammar {
 public:
  explicit LanguageGrammar(const Language& language) : language_(language) {}
  Result<std::unique_ptr<text::GrammarMatcher>> matcher() const override {
    return std::unique_ptr<text::GrammarMatcher>(std::make_unique<LanguageMatcher>(language_));
  }

 private:
  Language language_;
};

// StructuredOutput::text is "least most refuses_at dead_at ids"; those of kind kGrammar are not bounded.
class LanguageCompiler : public text::GrammarCompiler {
 public:
  Result<std::shared_ptr<const text::Grammar>> compile(const StructuredOutput& wanted) override {
    Language language;
    if (std::sscanf(wanted.text.c_str(), "%d %d %d %d %d", &language.least, &language.most, &language.refuses_at,
                    &language.dead_at, &language.ids) < 2) {
      return invalid_argument("no language is called {}", wanted.text);
    }
    language.is_bounded = wanted.kind != StructuredOutput::Kind::kGrammar;
    return std::make_shared<const LanguageGrammar>(language);
  }
  Status library_status() override { return {}; }
};

inline Result<std::unique_ptr<text::GrammarCompiler>> make_languages(const text::Tokenizer&, std::vector<int32_t> end_ids) {
  EXPECT_EQ(end_ids, (std::vector{kEos, kOtherEos}));
  return std::unique_ptr<text::GrammarCompiler>(std::make_unique<LanguageCompiler>());
}

inline Request speaking(const std::string& language, uint32_t seed, int max_tokens = 40, bool is_bounded = true) {
  auto request = greedy_request(random_prompt(20 + static_cast<int>(seed), seed), max_tokens);
  request.sampling.temperature = seed % 2 == 0 ? 0.0F : 1.2F;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = false;
  const auto kind = is_bounded ? StructuredOutput::Kind::kRegex : StructuredOutput::Kind::kGrammar;
  if (!language.empty()) request.structured_output = {.kind = kind, .text = language};
  return request;
}

inline void expect_speaks(const Language& language, const Completion& completion) {
  int place = 0;
  for (const int32_t id : completion.token_ids) {
    if (id == kEos || id == kOtherEos) {
      EXPECT_GE(place, language.least);
      EXPECT_EQ(id, completion.token_ids.back());
    } else {
      EXPECT_TRUE(language.allows(place, id)) << id << " at " << place;
    }
    ++place;
  }
}

}  // namespace choral::engine
