// Beam search over tokens and log-probabilities alone: which beginnings of an answer go on, which answers are complete, and when
// no better one can come. As transformers' generate(num_beams) decides, without drawing. In each round every beam offers what may
// follow it. Of all that, the best `width` that end nothing go on; what ends its answer is kept if it is among the best `width`
// of all, and if its score, the sum of its log-probabilities / tokens^length_penalty, is among the best `width` so far.
// Allocates only where an answer is kept and in the first rounds. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "choral/types.h"
#include "kernels/sampling/sampling.h"

namespace choral::engine {

inline constexpr int32_t kMostBeams = 64;
inline constexpr size_t kMostBeamStops = 64;  // with the beams no more log-probabilities of a row than devices tell

struct BeamRule {
  int32_t width = 1;
  float length_penalty = 1.0f;
  EarlyStopping early_stopping = EarlyStopping::kNo;
  int32_t min_tokens = 0;         // before so many no answer is complete
  int32_t max_tokens = 0;         // of an answer
  std::vector<int32_t> stop_ids;  // each ends an answer, as its last token

  // Likeliest tokens that a beam must offer, so that `width` of them end nothing.
  int32_t offered() const { return width + static_cast<int32_t>(stop_ids.size()); }
};

class BeamSearch {
 public:
  // A beam's way on: the tokens of the beam `from` and one behind them, which together have this log-probability.
  struct Step {
    int32_t from = 0;
    int32_t token = 0;
    double logprob = 0;
  };
  struct Answer {
    std::vector<int32_t> tokens;
    double logprob = 0;
    double score = 0;
    bool is_stopped = false;  // by its last token; else by max_tokens
  };

  explicit BeamSearch(BeamRule rule);

  // Beams, numbered from 0, that offer in this round: at first one, that of the prompt.
  int32_t beams() const { return static_cast<int32_t>(logprobs_.size()); }
  // What may follow the beam, likeliest first, BeamRule::offered() of them.
  void offer(int32_t beam, std::span<const kernels::TokenLogprob> likeliest);
  bool all_offered() const { return offers_ == beams(); }
  // The round begins again.
  void forget_offers();

  // Ends the round. `tokens[i]`: of the answer, so far, of beam i. Gives each of the `width` beams of the next round its way on;
  // one whose tokens go on anywhere goes on with them itself. None: the search has ended.
  std::span<const Step> advance(std::span<const std::span<const int32_t>> tokens);

  // The complete answers, best first: `width` of them at the end.
  std::span<const Answer> answers() const { return answers_; }
  const BeamRule& rule() const { return rule_; }

 private:
  bool is_stop(int32_t token) const;
  double score_of(double logprob, int32_t count) const;
  void keep(const Step& step, std::span<const int32_t> tokens, bool is_stopped);
  bool may_improve() const;
  void place_steps();

  BeamRule rule_;
  int32_t length_ = 0;            // tokens of each beam
  std::vector<double> logprobs_;  // of each beam
  std::vector<bool> has_offered_;
  int32_t offers_ = 0;
  std::vector<Step> candidates_;  // of all beams, in this round
  std::vector<Step> going_on_;    // the best of them, best first
  std::vector<Step> placed_;      // the same, each in its beam's place
  std::vector<Answer> answers_;
};

}  // namespace choral::engine
