#include "text/grammar/grammar_cache.h"

namespace choral::text {

std::shared_ptr<const Grammar> GrammarCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = places_.find(key);
  if (at == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at->second);
  return at->second->grammar;
}

void GrammarCache::add(const std::string& key, const CompiledGrammar& compiled) {
  const size_t bytes = compiled.bytes + 2 * key.size();
  if (bytes > max_bytes_ || max_entries_ == 0) return;
  const std::lock_guard lock(mutex_);
  if (const auto at = places_.find(key); at != places_.end()) drop(at->second);
  while (!entries_.empty() && (entries_.size() >= max_entries_ || bytes_ + bytes > max_bytes_)) drop(std::prev(entries_.end()));
  entries_.push_front({key, compiled.grammar, bytes});
  places_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
}

Result<GrammarHold> GrammarCache::hold(size_t bytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  if (bytes > max_live_bytes_) {
    return too_large("this grammar takes {} MiB once compiled, and all together may take {} MiB; make it smaller", bytes / kMiB,
                     max_live_bytes_ / kMiB);
  }
  const std::lock_guard lock(mutex_);
  const auto fits = [&] { return *live_bytes_ + bytes <= max_live_bytes_; };
  while (!fits() && !entries_.empty()) drop(std::prev(entries_.end()));
  if (!fits()) {
    return resource_exhausted("the grammars of answers in flight take {} MiB, and may take {} MiB; try again later",
                              *live_bytes_ / kMiB, max_live_bytes_ / kMiB);
  }
  *live_bytes_ += bytes;
  return GrammarHold(nullptr, [live = live_bytes_, bytes](const void*) { *live -= bytes; });
}

size_t GrammarCache::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void GrammarCache::drop(Place place) {
  bytes_ -= place->bytes;
  places_.erase(place->key);
  entries_.erase(place);
}

}  // namespace choral::text
