// For tests: tokenizers of tests/data, an answer sampled under masks, and what a matcher makes of a text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace choral::text {

inline std::string test_file(const std::string& name) {
  std::ifstream in(std::string(CHORAL_TEST_DATA) + "/text/tokenizers/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline std::shared_ptr<const Tokenizer> test_tokenizer(const std::string& name) {
  auto tokenizer = Tokenizer::from_json(test_file(name + "/tokenizer.json"), test_file(name + "/tokenizer_config.json"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

inline std::vector<uint32_t> mask_of(GrammarMatcher& matcher, const Tokenizer& tokenizer) {
  std::vector<uint32_t> words((static_cast<size_t>(tokenizer.vocab_size()) + 31) / 32, 0xAAAAAAAA);
  matcher.fill_mask(words);
  return words;
}
inline bool has(const std::vector<uint32_t>& words, int32_t id) { return words[id / 32] >> (id % 32) & 1; }
inline std::vector<int32_t> ids_in(const std::vector<uint32_t>& words) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < words.size() * 32; ++i) {
    if (has(words, static_cast<int32_t>(i))) ids.push_back(static_cast<int32_t>(i));
  }
  return ids;
}

// Random tokens of the mask, then those that tend to close what is open (`end_of_value`, where a value ends with such a mark),
// until only the end may follow. Checks on the way that accept() agrees with the mask. The text, or nothing when it found no end.
inline std::optional<std::string> sample(GrammarMatcher& matcher, const Tokenizer& tokenizer, int32_t end_id,
                                         std::mt19937& random, int random_tokens, int most = 400,
                                         std::string_view end_of_value = "") {
  std::map<char, int32_t> bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (const auto token = tokenizer.token_bytes(id); token.size() == 1) bytes.emplace(token[0], id);
  }
  std::string text;
  for (int step = 0; step < most; ++step) {
    const auto words = mask_of(matcher, tokenizer);
    const auto ids = ids_in(words);
    EXPECT_FALSE(ids.empty()) << "a dead end behind " << text;
    if (ids.empty()) return std::nullopt;
    EXPECT_EQ(has(words, end_id), matcher.complete());
    if (has(words, end_id) && (step >= random_tokens || ids.size() == 1)) return text;
    int32_t chosen = ids[random() % ids.size()];
    if (step >= random_tokens) {
      std::string closing = "\"}]:0";
      size_t said = std::min(end_of_value.size() - (end_of_value.empty() ? 0 : 1), text.size());
      while (said > 0 && !text.ends_with(end_of_value.substr(0, said))) --said;
      closing.insert(0, end_of_value.substr(said, 1));
      for (const char c : closing) {
        if (const auto id = bytes.find(c); id != bytes.end() && has(words, id->second)) {
          chosen = id->second;
          break;
        }
      }
    }
    if (chosen == end_id) continue;
    const auto refused = static_cast<int32_t>(random() % static_cast<size_t>(tokenizer.vocab_size()));
    EXPECT_TRUE(has(words, refused) || !matcher.accept(refused)) << refused;
    EXPECT_TRUE(matcher.accept(chosen)) << chosen;
    text += tokenizer.token_bytes(chosen);
  }
  return std::nullopt;
}

// Whether the matcher takes all tokens and may end; every token must be in the mask before.
inline bool takes_tokens(const Grammar& grammar, const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  auto matcher = grammar.matcher();
  EXPECT_TRUE(matcher.ok()) << matcher.status().to_string();
  for (const int32_t id : ids) {
    const bool allowed = has(mask_of(**matcher, tokenizer), id);
    const bool accepted = (*matcher)->accept(id);
    EXPECT_EQ(allowed, accepted) << id;
    if (!accepted) return false;
  }
  return (*matcher)->complete();
}

// One token a byte, where the vocabulary has all of them.
inline std::vector<int32_t> byte_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (!tokenizer.is_special(id) && tokenizer.token_bytes(id) == std::string_view(&c, 1)) {
        ids.push_back(id);
        break;
      }
    }
  }
  return ids;
}

}  // namespace choral::text
