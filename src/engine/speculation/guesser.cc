#include "engine/speculation/guesser.h"

#include <algorithm>

namespace choral::engine {
namespace {

constexpr double kKeepOfAll = 0.995, kKeepOfOne = 0.9, kKeepAtRest = 0.98;
// What is believed before anything is seen: as many trials, half of them right.
constexpr double kFirstTrials = 4, kFirstShare = 0.5;
constexpr double kTrialsOfAll = 2;  // so many weigh what others taught beside the request's own

size_t kind_of(int32_t from) { return is_in_traffic(from) ? 3 : from == kByForm ? 1 : from == kByDraft ? 2 : 0; }

}  // namespace

size_t GuessRecord::length_class(int32_t matched) {
  constexpr std::array<int32_t, kMatches - 1> kMost{3, 5, 9, 20};
  return static_cast<size_t>(std::lower_bound(kMost.begin(), kMost.end(), matched) - kMost.begin());
}

size_t GuessRecord::class_of(int32_t from) {
  if (is_in_traffic(from)) return kMatches + 2 + length_class(in_traffic(from));
  return from < 0 ? kMatches - 1 + kind_of(from) : length_class(from);
}

double GuessRecord::share(int32_t from) const {
  const RightCount& of = classes_[class_of(from)];
  return (of.right + kFirstTrials * kFirstShare) / (of.all + kFirstTrials);
}

void GuessRecord::add(int32_t from, int32_t right, int32_t trials) { classes_[class_of(from)].add(right, trials, kKeepOfAll); }

// The prediction says what is meant by the answer; the request's own text only goes before it where it has the longer match, and
// other answers before both likewise.
int32_t Guesser::look_up(std::span<const int32_t> text, int32_t answer_begin, int32_t max_length, std::span<int32_t> out) {
  if (!lookup_.has_tried()) lookup_.make_room(max_length);
  const auto predicted = prediction_ != nullptr ? prediction_->guess(text, answer_begin, out) : Prediction::Guess();
  const int32_t own = lookup_.guess(text, out, predicted.matched);
  is_predicted_ = own == 0 && predicted.count > 0;
  from_ = std::max(own, predicted.matched);
  const int32_t count = own > 0 ? static_cast<int32_t>(out.size()) : predicted.count;
  if (traffic_ == nullptr) return count;
  const auto found = traffic_->guess(group_, text, out, from_);
  if (found.count == 0) return count;
  is_predicted_ = false;
  from_ = in_traffic(found.matched);
  return found.count;
}

void Guesser::count(int32_t guessed, int32_t right) {
  counts_.guessed += guessed;
  counts_.right += right;
  if (from_ < 0 || !is_predicted_) return;
  counts_.predicted += guessed;
  counts_.predicted_right += right;
}

double Guesser::share(const GuessRecord& record, int32_t from) const {
  const RightCount& own = own_[kind_of(from)];
  return (own.right + kTrialsOfAll * record.share(from)) / (own.all + kTrialsOfAll);
}

// Those behind the first wrong one were no trials: they could not be right.
void Guesser::judge(GuessRecord& record, int32_t guessed, int32_t right) {
  const int32_t trials = std::min(right + 1, guessed);
  own_[kind_of(from_)].add(right, trials, kKeepOfOne);
  record.add(from_, right, trials);
}

void Guesser::rest(int32_t from) { own_[kind_of(from)].add(0, 0, kKeepAtRest); }

}  // namespace choral::engine
