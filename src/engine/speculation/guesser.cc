#include "engine/speculation/guesser.h"

#include <algorithm>

namespace choral::engine {
namespace {

constexpr double kKeepOfAll = 0.995, kKeepOfOne = 0.9, kKeepAtRest = 0.98;
// What is believed before anything is seen: as many trials, half of them right.
constexpr double kFirstTrials = 4, kFirstShare = 0.5;
constexpr double kTrialsOfAll = 2;  // so many weigh what others taught beside the request's own

double share_of_all(const RightCount& of) { return (of.right + kFirstTrials * kFirstShare) / (of.all + kFirstTrials); }
double share_of_one(const RightCount& own, double of_all) {
  return (own.right + kTrialsOfAll * of_all) / (own.all + kTrialsOfAll);
}

// Those behind the first wrong one were no trials: they could not be right.
int32_t trials_of(int32_t guessed, int32_t right) { return std::min(right + 1, guessed); }

}  // namespace

size_t GuessRecord::class_of(int32_t matched) {
  constexpr std::array<int32_t, kClasses - 1> kMost{3, 5, 9, 20};
  return static_cast<size_t>(std::lower_bound(kMost.begin(), kMost.end(), matched) - kMost.begin());
}

double GuessRecord::share(int32_t matched) const { return share_of_all(classes_[class_of(matched)]); }

void GuessRecord::add(int32_t matched, int32_t right, int32_t trials) {
  classes_[class_of(matched)].add(right, trials, kKeepOfAll);
}

double DraftRecord::share() const { return share_of_all(all_); }

void DraftRecord::add(int32_t right, int32_t trials) { all_.add(right, trials, kKeepOfAll); }

double Guesser::share(const GuessRecord& record) const { return share_of_one(own_, record.share(matched)); }

void Guesser::judge(GuessRecord& record, int32_t guessed, int32_t right) {
  const int32_t trials = trials_of(guessed, right);
  own_.add(right, trials, kKeepOfOne);
  record.add(matched, right, trials);
}

void Guesser::rest() { own_.add(0, 0, kKeepAtRest); }

double Guesser::draft_share(const DraftRecord& record) const { return share_of_one(own_draft_, record.share()); }

void Guesser::judge_draft(DraftRecord& record, int32_t guessed, int32_t right) {
  const int32_t trials = trials_of(guessed, right);
  own_draft_.add(right, trials, kKeepOfOne);
  record.add(right, trials);
}

void Guesser::rest_draft() { own_draft_.add(0, 0, kKeepAtRest); }

}  // namespace choral::engine
