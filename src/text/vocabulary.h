// All tokens of a tokenizer, the model's and the added ones: text <-> id. Ids may have holes.
// Thread-safety: immutable after load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/flat_hash.h"

namespace choral::text {

constexpr int64_t kMaxVocabulary = 1 << 22;
constexpr size_t kMaxTokenBytes = 1 << 16;

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Refuses ids outside 0 … kMaxVocabulary-1 and two tokens for one id. The same token twice: the later id counts, as in HF.
  Status add(std::string_view token, int64_t id);
  // Call once, after the last add(): only then the views and find() work. Refuses ids far above the number of tokens, for tables
  // by id would be mostly holes.
  Status finish();

  int32_t find(std::string_view token) const { return table_.find(token); }  // or -1
  bool contains(int32_t id) const { return id >= 0 && id < id_limit() && entries_[id].begin != kHole; }
  std::string_view token(int32_t id) const {
    const Entry& e = entries_[id];
    return std::string_view(arena_).substr(e.begin, e.size);
  }
  int32_t id_limit() const { return static_cast<int32_t>(entries_.size()); }  // highest id + 1
  size_t size() const { return table_.size(); }                               // distinct tokens
  size_t longest() const { return longest_; }                                 // bytes, at least 1
  size_t text_bytes() const { return arena_.size(); }                         // of all tokens
  bool has_twins() const { return count_ > size(); }                          // two ids with one text

 private:
  static constexpr uint64_t kHole = ~uint64_t{0};
  struct Entry {
    uint64_t begin = kHole;
    uint32_t size = 0;
  };
  std::string arena_;
  std::vector<Entry> entries_;
  StringTable table_;
  size_t count_ = 0;  // of entries that are no holes
  size_t longest_ = 1;
};

}  // namespace choral::text
