// Decides, before each step, which requests are given guesses of their next tokens, and how many. Rows of guesses are computed
// beside the token that is known; each gives the token that follows it, by the same draw as ever, so an answer's tokens are the
// same to the last bit whether they were guessed or not. A guess costs its row of the step and gains a step where it is right; so
// they are added, the likeliest first, as long as tokens a second grow by what steps cost (step_costs.h) and by how often the
// request's guesses were right of late. Guesses come from the text (prompt_lookup.h) and, where an answer keeps a form or the end of its
// thoughts must be written, from what these leave open. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "choral/llm.h"
#include "engine/speculation/guesser.h"
#include "engine/speculation/step_costs.h"
#include "engine/step_input.h"
#include "sched/step_plan.h"

namespace choral::engine {

struct EngineRequest;

class Speculator {
 public:
  static constexpr int32_t kMostGuessed = sched::Request::kMostGuesses;  // of one request in a step
  static_assert(kMostGuessed == SpeculationStats::kMostGuessed && 1 + kMostGuessed == kMostLogitsRows);

  // `most_guessed`: of one request in a step; 0: it never guesses.
  Speculator(int32_t most_guessed, int32_t max_num_seqs);

  // Writes the guesses of each running one.
  void guess(std::span<sched::Request* const> running);
  // The step that was planned then took so long.
  void add_step(const sched::StepPlan& plan, double seconds);
  // The request's grammar makes its masks beside us: says what it is to look ahead to.
  void wish(EngineRequest& request);
  // Of the request's guesses the first `right` were.
  void judge(EngineRequest& request, int32_t guessed, int32_t right);

  int32_t most_guessed() const { return most_guessed_; }
  const SpeculationStats& stats() const { return stats_; }

 private:
  struct Row {
    float probability;  // that it is right, and all before it
    int32_t request;    // of guessed_
  };
  void guess_of(EngineRequest& request);
  int32_t write_guess(EngineRequest& request, std::span<int32_t> out) const;
  int32_t write_allowed_guess(EngineRequest& request, std::span<int32_t> out) const;
  void choose(int32_t known);
  int32_t worth(double share, int32_t most) const;

  const int32_t most_guessed_;
  StepCosts costs_;
  GuessRecord record_;
  SpeculationStats stats_;
  double least_worth_ = 1;  // a row more, with a guess that is right so often, was worth its time in the last step
  std::vector<EngineRequest*> guessed_;
  std::vector<Row> rows_;
};

}  // namespace choral::engine
