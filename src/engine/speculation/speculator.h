// Decides, before each step, which requests are given guesses of their next tokens, and how many. Rows of guesses are computed
// beside the token that is known; each gives the token that follows it, by the same draw as ever, so an answer's tokens are the
// same to the last bit whether they were guessed or not. A guess costs its row of the step and gains a step where it is right; so
// they are added, the likeliest first, as long as tokens a second grow by what steps cost (step_costs.h) and by how often the
// request's guesses were right of late.
// A text is looked up in itself (prompt_lookup.h), which is free, as is what the form of an answer, or the end of its thoughts,
// leaves open. The masks of a form that are made for guesses on our thread count as time of the step. A draft model, if there is
// one, is asked where that makes tokens a second higher, its steps' time counted: what it must read of a text first is paid as
// long as the answer seems to go on long enough to gain it.
// Where it does not pay, a small share of the time goes into trying again. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "choral/llm.h"
#include "engine/answer_grammar.h"
#include "engine/speculation/draft_model.h"
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

  // `most_guessed`: of one request in a step; 0: it never guesses. `traffic_bytes`: for what ended answers said;
  // 0: nothing is kept of them. `draft`: null: there is none. `mask_clock`: what the calling thread has computed.
  Speculator(int32_t most_guessed, int32_t max_num_seqs, int64_t traffic_bytes, std::unique_ptr<DraftModel> draft,
             Clock mask_clock);
  int32_t most_guessed() const { return most_guessed_; }

  // Writes the guesses of each running one. `arrived`: tokens of prompts that came since the last step was planned.
  void guess(std::span<sched::Request* const> running, int64_t arrived);
  // The step that was planned then took so long.
  void add_step(const sched::StepPlan& plan, double seconds);
  // The request's grammar makes its masks beside us: says what it is to look ahead to.
  void wish(EngineRequest& request);
  // Of the request's guesses the first `right` were.
  void judge(EngineRequest& request, int32_t guessed, int32_t right);
  // Before its first step, and behind its last.
  void begin(EngineRequest& request);
  void end(const EngineRequest& request);

  SpeculationStats stats() const;

 private:
  // A request that may be guessed for.
  struct Candidate {
    EngineRequest* request;
    int32_t written = 0;            // guesses that cost nothing
    int32_t unread = 0;             // by the draft model; 0: it cannot guess for this request
    bool draft_goes_first = false;  // its guesses are likelier than those
    int32_t count = 0;              // guesses that were chosen
    int32_t read = 0;               // tokens that the draft model reads
    lora::AdapterKey adapter = {};  // that it reads and guesses with
    double mask_s = 0;              // of each token, made on this thread
  };
  struct Row {
    float probability;  // that it is right, and all before it
    int32_t candidate;  // of candidates_
    int32_t place;      // 0: the first guess
    bool by_draft;
  };
  // The first so many rows of those that a choice may have.
  struct Choice {
    double rate = 0;  // tokens a second
    size_t rows = 0;
  };
  // What the draft model may guess for.
  enum class Drafts : uint8_t { kNone, kOfThoseItRead, kOfAll };

  int32_t most_of(const EngineRequest& request) const;
  void consider(EngineRequest& request);
  int32_t write_guess(EngineRequest& request, std::span<int32_t> out) const;
  int32_t write_allowed_guess(EngineRequest& request, std::span<int32_t> out) const;
  void keep(const cache::PrefixRoot& group, const EngineRequest& request);
  int32_t worth(double share, int32_t most) const;
  void add_rows(double share, int32_t most, bool by_draft);
  bool may_have(const Row& row, Drafts drafts) const;
  Choice choose(int32_t known, Drafts drafts);
  void take(const Choice& choice, Drafts drafts);
  void read_texts(int32_t known, double without, double with_all);
  void try_again(int32_t known);
  void ask_draft();
  double mask_seconds(const EngineRequest& request) const;
  void make_masks(EngineRequest& request);
  void finish_guesses();

  const int32_t most_guessed_;
  std::optional<TrafficStore> traffic_;
  const std::unique_ptr<DraftModel> draft_;
  const Clock mask_clock_;
  StepCosts costs_;
  MaskAccount masks_;         // of all requests whose masks are made here
  double known_masks_s_ = 0;  // of the candidates, which they cost without guesses too
  GuessRecord record_;
  SpeculationStats stats_;
  double least_worth_ = 1;         // a row more, with a guess that is right so often, was worth its time in the last step
  std::optional<double> purse_s_;  // for tries of the draft model where it does not pay; from the first step on that is timed
  std::vector<Candidate> candidates_;
  std::vector<Row> rows_;
  size_t most_rows_ = 0;  // that the step may have
  std::vector<DraftWish> wishes_;
  std::vector<Candidate*> wishers_;  // one for each wish
};

}  // namespace choral::engine
