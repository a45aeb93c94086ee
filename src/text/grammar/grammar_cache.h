// The grammars that were used last, bounded in number and in bytes. In memory only: a client with ever new schemas fills no disk.
// And an account of all grammars that there are: answers in flight hold theirs after the cache has dropped it, thousands of
// answers maybe one each. Thread-safety: all methods from any thread.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/grammar/xgrammar_grammar.h"

namespace choral::text {

class GrammarCache {
 public:
  // `max_bytes` in the cache, `max_live_bytes` there and elsewhere.
  GrammarCache(size_t max_entries, size_t max_bytes, size_t max_live_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes), max_live_bytes_(max_live_bytes) {}

  std::shared_ptr<const Grammar> find(const std::string& key);  // null when absent
  void add(const std::string& key, const CompiledGrammar& compiled);
  size_t size_bytes() const;

  // A share of max_live_bytes, for as long as the hold is kept; grammars of the cache make room for it. too_large: it never fits.
  // resource_exhausted: answers in flight hold too much.
  Result<GrammarHold> hold(size_t bytes);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes;
  };
  using Place = std::list<Entry>::iterator;
  void drop(Place place);

  const size_t max_entries_, max_bytes_, max_live_bytes_;
  const std::shared_ptr<std::atomic<size_t>> live_bytes_ = std::make_shared<std::atomic<size_t>>(0);  // holds may outlive this
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // used last stands first
  std::unordered_map<std::string_view, Place> places_;
  size_t bytes_ = 0;
};

}  // namespace choral::text
