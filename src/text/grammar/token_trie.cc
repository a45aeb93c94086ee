#include "text/grammar/token_trie.h"

#include <algorithm>

namespace choral::text {

TokenTrie::TokenTrie(const GrammarVocabulary& vocabulary, std::span<const int32_t> ids) : ids_(ids.begin(), ids.end()) {
  std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) { return vocabulary.text(a) < vocabulary.text(b); });
  std::vector<uint32_t> path;  // nodes from the root to the last one
  std::string_view last;
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].next = static_cast<uint32_t>(nodes_.size());
  };
  for (uint32_t t = 0; t < ids_.size(); ++t) {
    const std::string_view text = vocabulary.text(ids_[t]);
    const auto fork = std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first;
    leave(static_cast<size_t>(fork - last.begin()));
    while (path.size() < text.size()) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, t, static_cast<uint8_t>(text[path.size() - 1]), static_cast<uint8_t>(path.size())});
    }
    last = text;
  }
  leave(0);
  nodes_.push_back({0, static_cast<uint32_t>(ids_.size()), 0, 0});
}

TokenTrie::Longest TokenTrie::longest(std::string_view text) const {
  Longest best;
  uint32_t depth = 1;
  for (uint32_t i = 0; i + 1 < nodes_.size() && nodes_[i].depth == depth && depth <= text.size();) {
    if (nodes_[i].byte != static_cast<uint8_t>(text[depth - 1])) {
      i = nodes_[i].next;
      continue;
    }
    if (nodes_[i].tokens < nodes_[i + 1].tokens) best = {ids_[nodes_[i].tokens], depth};
    ++i;
    ++depth;
  }
  return best;
}

}  // namespace choral::text
