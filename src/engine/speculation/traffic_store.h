// What answers said that have ended, for those that say it again: of requests with the same adapters and the same cache_salt,
// which share a prefix cache too and so nothing that they did not share before. Each such group has a shelf of two books: the one
// that is written, and the one before, which is forgotten when the new one is full. Books grow with what a shelf has seen. Of
// shelves the one longest unused goes when there is no room. Memory is malloc's, as of prompt_lookup.h. Engine thread only.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <unordered_map>

#include "cache/prefix_key.h"
#include "engine/speculation/prompt_lookup.h"

namespace choral::engine {

class TrafficStore {
 public:
  explicit TrafficStore(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Keeps the answer that begins at `answer_begin`, and the tokens before it by which its beginning is found.
  void add(const cache::PrefixRoot& group, std::span<const int32_t> text, int32_t answer_begin);
  struct Guess {
    int32_t matched = 0;  // tokens before the guess that are the same as at the text's end; 0: nothing is written
    int32_t count = 0;    // written
  };
  // Writes what followed where an answer of the group said what `text` says last, if more than `more_than` tokens are the same.
  Guess guess(const cache::PrefixRoot& group, std::span<const int32_t> text, std::span<int32_t> out, int32_t more_than);

  int64_t size_bytes() const { return bytes_; }

 private:
  // Answers one behind the other, a token that none is between them.
  struct Book {
    struct Free {
      void operator()(int32_t* memory) const { std::free(memory); }
    };
    std::unique_ptr<int32_t[], Free> tokens;
    int32_t room = 0, count = 0;
    PromptLookup lookup;

    std::span<const int32_t> text() const { return {tokens.get(), static_cast<size_t>(count)}; }
  };
  struct Shelf {
    Book now, before;
    uint64_t used = 0;
  };
  struct HashOf {
    size_t operator()(const cache::PrefixKey& key) const;
  };
  static int64_t bytes_of(int32_t room);
  void begin_book(Shelf& shelf, int32_t least);
  bool make_room(int64_t bytes, const Shelf& for_shelf);

  const int64_t most_bytes_;
  int64_t bytes_ = 0;
  uint64_t uses_ = 0;
  std::unordered_map<cache::PrefixKey, Shelf, HashOf> shelves_;
};

}  // namespace choral::engine
