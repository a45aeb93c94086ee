// What grammars know of a tokenizer: the bytes that each token adds to the text, and which tokens add none. A copy, so that a
// compiler outlives its tokenizer. Thread-safety: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace choral::text {

class GrammarVocabulary {
 public:
  // A longer token never fits a grammar: it would only make tables deep that no answer needs.
  static constexpr size_t kMaxTokenBytes = 255;

  GrammarVocabulary(const Tokenizer& tokenizer, std::vector<int32_t> end_ids);

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }  // highest id + 1
  size_t words() const { return (texts_.size() + 31) / 32; }
  // Empty for ids that are no text: special, unused and end tokens, holes, those over kMaxTokenBytes.
  std::string_view text(int32_t id) const {
    if (id < 0 || id >= size()) return {};
    const auto& [begin, bytes] = texts_[id];
    return std::string_view(arena_).substr(begin, bytes);
  }
  std::span<const int32_t> text_ids() const { return text_ids_; }  // ascending
  std::span<const int32_t> end_ids() const { return end_ids_; }    // ascending, all below size()
  bool is_end(int32_t id) const;
  // Special tokens that end nothing, as the file spells them: markers that a structural tag may name.
  std::span<const std::pair<int32_t, std::string>> special_tokens() const { return special_tokens_; }
  std::string_view special_text(int32_t id) const;  // of one of them

 private:
  std::string arena_;
  std::vector<std::pair<uint64_t, uint32_t>> texts_;
  std::vector<int32_t> text_ids_, end_ids_;
  std::vector<std::pair<int32_t, std::string>> special_tokens_;
};

}  // namespace choral::text
