// Guesses of one request, and how often they are right: by the length of the match that they come from, over all requests, and by
// the request's own of late. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "choral/types.h"
#include "engine/speculation/prediction.h"
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

class Guesser {
 public:
  // Tokens of a step; 0: none are guessed.
  void set_most(int32_t most) { most_ = most; }
  int32_t most() const { return most_; }
  void set_prediction(std::shared_ptr<const Prediction> prediction) { prediction_ = std::move(prediction); }
  // Writes what may follow `text`, whose answer begins at `answer_begin` and which never grows longer than `max_length`; says how
  // many tokens.
  int32_t guess(std::span<const int32_t> text, int32_t answer_begin, int32_t max_length, std::span<int32_t> out);
  // Of the last guess's tokens so many were computed, and the first `right` of these came true.
  void count(int32_t guessed, int32_t right);
  const GuessCounts& counts() const { return counts_; }

  // Probability that a guessed token is right when those before it are.
  double share(const GuessRecord& record) const;
  void judge(GuessRecord& record, int32_t guessed, int32_t right);
  // A step without guesses: what was learned counts less.
  void rest();

 private:
  PromptLookup lookup_;
  std::shared_ptr<const Prediction> prediction_;  // null: there is none
  int32_t most_ = 0;
  int32_t matched_ = 0;        // of the last guess
  bool is_predicted_ = false;  // … which the prediction gave
  GuessCounts counts_;
  RightCount own_;
};

}  // namespace choral::engine
