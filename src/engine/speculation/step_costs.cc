#include "engine/speculation/step_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace choral::engine {
namespace {

constexpr int64_t kRemembered = 16;  // steps that a mean is of, about
// The most that a step counts beside the mean, for it waited for something else; and a mean beside a step.
constexpr double kMostOutlier = 2;
constexpr double kKeptOfOld = 0.94, kStepsOfAge = 16;      // so much of a mean counts on after so many steps of others
constexpr int64_t kFreshSteps = 64, kFirstFreshSteps = 8;  // at most, and for each time that it was seen
constexpr double kRowBeyond = 0.1;                         // of a step, where more rows than these were never seen

}  // namespace

int32_t StepCosts::class_of(int32_t rows) {
  if (rows <= 4) return std::max(rows, 1) - 1;
  const auto power = static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(rows - 1))) - 1;  // 2^power < rows ≤ 2^(power+1)
  const bool upper = rows > (1 << power) + (1 << (power - 1));
  return std::min(4 + 2 * (power - 2) + (upper ? 1 : 0), kClasses - 1);
}

void StepCosts::add(int32_t rows, double seconds) {
  if (rows < 1 || !(seconds > 0)) return;
  Class& of = classes_[static_cast<size_t>(class_of(rows))];
  const auto age = static_cast<double>(++seen_ - of.last - 1);
  of.last = seen_;
  const double share =
      std::max(1.0 / static_cast<double>(std::min(++of.steps, kRemembered)), 1 - std::pow(kKeptOfOld, age / kStepsOfAge));
  if (of.steps > 3) seconds = std::min(seconds, kMostOutlier * of.seconds);
  if (of.steps > 1) of.seconds = std::min(of.seconds, kMostOutlier * seconds);  // none takes less than it must
  of.rows += (rows - of.rows) * share;
  of.seconds += (seconds - of.seconds) * share;
}

bool StepCosts::is_stale(int32_t rows) const {
  const Class& of = classes_[static_cast<size_t>(class_of(rows))];
  return seen_ - of.last >= std::min(kFreshSteps, kFirstFreshSteps * of.steps);
}

double StepCosts::seconds(int32_t rows) const {
  double before_rows = 0, before_s = 0;
  for (const Class& of : classes_) {
    if (of.steps == 0) continue;
    const double here = std::max(of.seconds, before_s);  // more rows never cost less
    if (before_s == 0 && rows <= of.rows) return here * (1 - kRowBeyond * std::min((of.rows - rows) / of.rows, 1.0));
    if (rows <= of.rows) return before_s + (here - before_s) * (rows - before_rows) / (of.rows - before_rows);
    before_rows = of.rows;
    before_s = here;
  }
  return before_s * (1 + kRowBeyond * (rows - before_rows) / std::max(before_rows, 1.0));
}

}  // namespace choral::engine
