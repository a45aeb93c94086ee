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
