#include "engine/speculation/guesser.h"

#include <algorithm>

namespace choral::engine {
namespace {

constexpr double kKeepOfAll = 0.995, kKeepOfOne = 0.9, kKeepAtRest = 0.98;
// What is believed before anything is seen: as many trials, half of them right.
constexpr double kFirstTrials = 4, kFirstShare = 0.5;
constexpr double kTrialsOfAll = 2;  // so many weigh what others taught beside the request's own

}  // namespace

size_t GuessRecord::class_of(int32_t matched) {
  constexpr std::array<int32_t, kClasses - 2> kMost{3, 5, 9, 20};
  if (matched == kByForm) return kClasses - 1;
  return static_cast<size_t>(std::lower_bound(kMost.begin(), kMost.end(), matched) - kMost.begin());
}

double GuessRecord::share(int32_t matched) const {
  const RightCount& of = classes_[class_of(matched)];
  return (of.right + kFirstTrials * kFirstShare) / (of.all + kFirstTrials);
}

void GuessRecord::add(int32_t matched, int32_t right, int32_t trials) {
  classes_[class_of(matched)].add(right, trials, kKeepOfAll);
}

double Guesser::share(const GuessRecord& record, int32_t from) const {
  const RightCount& own = own_[from == kByForm ? 1 : 0];
  return (own.right + kTrialsOfAll * record.share(from)) / (own.all + kTrialsOfAll);
}

// Those behind the first wrong one were no trials: they could not be right.
void Guesser::judge(GuessRecord& record, int32_t guessed, int32_t right) {
  const int32_t trials = std::min(right + 1, guessed);
  own_[matched == kByForm ? 1 : 0].add(right, trials, kKeepOfOne);
  record.add(matched, right, trials);
}

void Guesser::rest() {
  for (RightCount& own : own_) own.add(0, 0, kKeepAtRest);
}

}  // namespace choral::engine
