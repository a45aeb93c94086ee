// Guesses how a text goes on from how it went on before: finds the longest earlier place that ends as the text ends now, and
// gives what followed there. An answer that edits, quotes or fills in repeats its prompt for long stretches. Each place is
// chained to the one before with the same last kGram tokens, as a compressor does it: a token costs 12 bytes and a look at some
// places. Knows nothing of models or engines. Its memory is malloc's: a guess is not worth what operator new does to have some
// (engine/spare_memory.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace choral::engine {

class PromptLookup {
 public:
  static constexpr int32_t kGram = 3;          // tokens that must match
  static constexpr int32_t kMostPlaces = 16;   // looked at, the latest first
  static constexpr int32_t kMostMatched = 64;  // longer matches are as good
  static constexpr int32_t kMostText = 32768;  // tokens whose places are known; of a longer text the first

  // Once: makes room for a text of so many tokens. Without, also where there is no memory for it, nothing is guessed.
  // False: there is no memory.
  bool make_room(int32_t tokens);
  static int64_t bytes_for(int32_t tokens);
  bool has_tried() const { return has_tried_; }

  // Knows from now on the places of `text` that something follows; it begins with the text of the call before.
  void take_in(std::span<const int32_t> text);

  struct Match {
    int32_t last = 0;    // the place: its last token
    int32_t tokens = 0;  // that end there as they end the other text; 0: there is no such place
  };
  // The longest match of `text`'s end in the text that was taken in, of equal ones the latest.
  Match find(std::span<const int32_t> taken_in, std::span<const int32_t> text) const;

  // Takes `text` in and writes what may follow it; a place that is so late that the text ends before the guess does goes on as if
  // it were repeated. Gives the number of tokens before the guess that are the same as at the text's end; 0: no place is known
  // that has more of them than `more_than`, and nothing is written.
  int32_t guess(std::span<const int32_t> text, std::span<int32_t> out, int32_t more_than = 0);

 private:
  struct Free {
    void operator()(int32_t* memory) const { std::free(memory); }
  };
  using Places = std::unique_ptr<int32_t[], Free>;
  static size_t homes_for(int32_t tokens);
  uint32_t home(const int32_t* last) const;

  bool has_tried_ = false;
  uint32_t mask_ = 0;
  int32_t room_ = 0, known_ = 0;  // places
  Places latest_;                 // by a gram's hash: where one with it ended last; -1: nowhere
  Places before_;                 // of each position, the place before it with the same hash
};

}  // namespace choral::engine
