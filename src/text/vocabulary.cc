#include "text/vocabulary.h"

namespace choral::text {

Status Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id >= kMaxVocabulary) {
    return corrupt("token {:.100?} has id {}; ids go from 0 to {}", token, id, kMaxVocabulary - 1);
  }
  if (token.size() > kMaxTokenBytes) return too_large("token {} has {} bytes; the limit is {}", id, token.size(), kMaxTokenBytes);
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  Entry& entry = entries_[static_cast<size_t>(id)];
  if (entry.begin != kHole) {
    const std::string_view other = std::string_view(arena_).substr(entry.begin, entry.size);
    if (other == token) return {};
    return corrupt("tokens {:.100?} and {:.100?} both have id {}", other, token, id);
  }
  entry = {arena_.size(), static_cast<uint32_t>(token.size())};
  arena_ += token;
  return {};
}

void Vocabulary::finish() {
  table_ = StringTable(entries_.size());
  for (int32_t id = 0; id < id_limit(); ++id) {
    if (contains(id)) table_.insert_or_assign(token(id), id);
  }
}

}  // namespace choral::text
