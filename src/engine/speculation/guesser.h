// Guesses of one request, and how often they are right: by where they come from, over all requests, and by the request's own of
// late. Engine thread only.
#pragma once

#include <array>
#include <cstdint>

#include "engine/speculation/prompt_lookup.h"

namespace choral::engine {

// Trials and successes, the latest counting most.
struct RightCount {
  double right = 0, all = 0;
  void add(int32_t successes, int32_t trials, double keep) {
    right = right * keep + successes;
    all = all * keep + trials;
  }
};

// Where a guess comes from: the length of the match of prompt lookup, or this, of what the answer's form leaves open.
inline constexpr int32_t kByForm = -1;

// Over all requests, by where they come from.
class GuessRecord {
 public:
  double share(int32_t matched) const;
  void add(int32_t matched, int32_t right, int32_t trials);

 private:
  static constexpr size_t kClasses = 6;  // of matches, and kByForm
  static size_t class_of(int32_t matched);
  std::array<RightCount, kClasses> classes_ = {};
};

class Guesser {
 public:
  // Probability that a guessed token is right when those before it are, of the guess in hand or of one from elsewhere.
  double share(const GuessRecord& record) const { return share(record, matched); }
  double share(const GuessRecord& record, int32_t from) const;
  void judge(GuessRecord& record, int32_t guessed, int32_t right);
  // A step without guesses: what was learned counts less.
  void rest();

  PromptLookup lookup;
  int32_t matched = 0;  // of the last guess, or kByForm
  int32_t wished = 0;   // that of a guess that a mask thread has (AnswerGrammar::wish)

 private:
  std::array<RightCount, 2> own_;  // of matches, and kByForm
};

}  // namespace choral::engine
