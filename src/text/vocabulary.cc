#include "text/vocabulary.h"

#include <algorithm>

#include "base/printable.h"

namespace choral::text {

Status Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id >= kMaxVocabulary) {
    return corrupt("token {} has id {}; ids go from 0 to {}", quoted(token, 100), id, kMaxVocabulary - 1);
  }
  if (token.size() > kMaxTokenBytes) return too_large("token {} has {} bytes; the limit is {}", id, token.size(), kMaxTokenBytes);
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  Entry& entry = entries_[id];
  if (entry.begin != kHole) {
    const std::string_view other = std::string_view(arena_).substr(entry.begin, entry.size);
    if (other == token) return {};
    return corrupt("tokens {} and {} both have id {}", quoted(other, 100), quoted(token, 100), id);
  }
  entry = {arena_.size(), static_cast<uint32_t>(token.size())};
  ++count_;
  longest_ = std::max(longest_, token.size());
  arena_ += token;
  return {};
}

Status Vocabulary::finish() {
  constexpr size_t kIdsPerToken = 16, kFreeIds = 1 << 16;
  if (entries_.size() > kIdsPerToken * count_ + kFreeIds) {
    return corrupt("token {} has id {} in a vocabulary of {} tokens, whose ids may go up to {}",
                   quoted(token(id_limit() - 1), 100), id_limit() - 1, count_, kIdsPerToken * count_ + kFreeIds - 1);
  }
  table_ = StringTable(count_);
  for (int32_t id = 0; id < id_limit(); ++id) {
    if (contains(id)) table_.insert_or_assign(token(id), id);
  }
  return {};
}

}  // namespace choral::text
