// Guesses of one request, and how often they are right: by where they come from, over all requests, and by the request's own of
// late. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "choral/types.h"
#include "engine/speculation/prediction.h"
#include "engine/speculation/prompt_lookup.h"
#include "engine/speculation/traffic_store.h"

namespace choral::engine {

// Trials and successes, the latest counting most.
struct RightCount {
  double right = 0, all = 0;
  void add(int32_t successes, int32_t trials, double keep) {
    right = right * keep + successes;
    all = all * keep + trials;
  }
};

// Where a guess comes from: the length of the match where it was looked up, or one of these.
inline constexpr int32_t kByForm = -1;   // what the answer's form leaves open
inline constexpr int32_t kByDraft = -2;  // a draft model
// … and this, of a match in an answer that ended.
constexpr int32_t in_traffic(int32_t matched) { return -100 - matched; }
constexpr bool is_in_traffic(int32_t from) { return from < -100; }

// Over all requests.
class GuessRecord {
 public:
  double share(int32_t from) const;
  void add(int32_t from, int32_t right, int32_t trials);

 private:
  static constexpr size_t kMatches = 5, kClasses = 2 * kMatches + 2;  // of matches of both kinds, and the others
  static size_t length_class(int32_t matched);
  static size_t class_of(int32_t from);
  std::array<RightCount, kClasses> classes_ = {};
};

class Guesser {
 public:
  // Tokens of a step; 0: none are guessed.
  void set_most(int32_t most) { most_ = most; }
  int32_t most() const { return most_; }
  void set_prediction(std::shared_ptr<const Prediction> prediction) { prediction_ = std::move(prediction); }
  // What ended answers of requests with this root said is looked up too; null: nowhere.
  void set_traffic(TrafficStore* traffic, const cache::PrefixRoot& group) {
    traffic_ = traffic;
    group_ = group;
  }
  // Writes what may follow `text`, whose answer begins at `answer_begin` and which never grows longer than `max_length`; says how
  // many tokens, and sets from().
  int32_t look_up(std::span<const int32_t> text, int32_t answer_begin, int32_t max_length, std::span<int32_t> out);
  // Where the guess in hand comes from: GuessRecord's.
  int32_t from() const { return from_; }
  void set_from(int32_t from) { from_ = from; }
  // Of the last guess's tokens so many were computed, and the first `right` of these came true.
  void count(int32_t guessed, int32_t right);
  const GuessCounts& counts() const { return counts_; }

  // Probability that a guessed token is right when those before it are.
  double share(const GuessRecord& record, int32_t from) const;
  double share(const GuessRecord& record) const { return share(record, from_); }
  void judge(GuessRecord& record, int32_t guessed, int32_t right);
  // A step without guesses from there: what was learned of them counts less.
  void rest(int32_t from);

  int32_t wished_from = 0;  // of a guess that a mask thread has (AnswerGrammar::wish)

 private:
  PromptLookup lookup_;
  std::shared_ptr<const Prediction> prediction_;  // null: there is none
  TrafficStore* traffic_ = nullptr;
  cache::PrefixRoot group_ = {};
  int32_t most_ = 0;
  int32_t from_ = 0;
  bool is_predicted_ = false;  // the prediction gave it
  GuessCounts counts_;
  std::array<RightCount, 4> own_;  // of those looked up, kByForm, kByDraft, and in_traffic()
};

}  // namespace choral::engine
