// The grammars that were used last, bounded in number and in bytes. In memory only: a client with ever new schemas fills no disk.
// Thread-safety: all methods from any thread.
#pragma once

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
  GrammarCache(size_t max_entries, size_t max_bytes) : max_entries_(max_entries), max_bytes_(max_bytes) {}

  std::shared_ptr<const Grammar> find(const std::string& key);  // null when absent
  void add(const std::string& key, const CompiledGrammar& compiled);
  size_t size_bytes() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes;
  };
  using Place = std::list<Entry>::iterator;
  void drop(Place place);

  const size_t max_entries_, max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // used last stands first
  std::unordered_map<std::string_view, Place> places_;
  size_t bytes_ = 0;
};

}  // namespace choral::text
