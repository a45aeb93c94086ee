#include "engine/speculation/step_costs.h"

#include <algorithm>
#include <bit>

namespace choral::engine {
namespace {

constexpr int64_t kRemembered = 16;  // steps that a mean is of, about
constexpr double kMostOutlier = 2;   // a step that waited for something else counts as so many times the mean
constexpr double kRowBeyond = 0.1;   // of a step, where more rows than these were never seen

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
  ++seen_;
  const double share = 1.0 / static_cast<double>(std::min(++of.steps, kRemembered));
  if (of.steps > 3) seconds = std::min(seconds, kMostOutlier * of.seconds);
  of.rows += (rows - of.rows) * share;
  of.seconds += (seconds - of.seconds) * share;
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
