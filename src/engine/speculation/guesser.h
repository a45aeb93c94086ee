// Guesses of one request, and how often they are right: by the length of the match that they come from, over all requests, and by
// the request's own of late. Those of a draft model (draft_model.h) are counted apart. Engine thread only.
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

// Over all requests, by the length of the match.
class GuessRecord {
 public:
  double share(int32_t matched) const;
  void add(int32_t matched, int32_t right, int32_t trials);

 private:
  static constexpr size_t kClasses = 5;
  static size_t class_of(int32_t matched);
  std::array<RightCount, kClasses> classes_ = {};
};

// The same of a draft model.
class DraftRecord {
 public:
  double share() const;
  void add(int32_t right, int32_t trials);

 private:
  RightCount all_;
};

class Guesser {
 public:
  // Probability that a guessed token is right when those before it are.
  double share(const GuessRecord& record) const;
  void judge(GuessRecord& record, int32_t guessed, int32_t right);
  // A step without guesses: what was learned counts less.
  void rest();

  // The same of a draft model's.
  double draft_share(const DraftRecord& record) const;
  void judge_draft(DraftRecord& record, int32_t guessed, int32_t right);
  void rest_draft();

  PromptLookup lookup;
  int32_t matched = 0;    // of the last guess
  bool by_draft = false;  // it is a draft model's

 private:
  RightCount own_, own_draft_;
};

}  // namespace choral::engine
