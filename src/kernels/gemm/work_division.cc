#include "kernels/gemm/work_division.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/gemm/gemm_quant_kernel.h"

namespace choral::kernels {
namespace {

constexpr double kEven = 1.15;
// A part's rows use each block of weights that was read, and widened, for them.
constexpr int64_t kFewestRows = 48;

// Threads that one of so many parts may count on.
int share_of(int threads, int64_t parts) { return static_cast<int>(ceil_div(threads, parts)); }

}  // namespace

int64_t panels_per_task(int64_t panels, int threads, int64_t group, int64_t most) {
  const int64_t share = ceil_div(panels, threads);
  // Aligned tasks, at least some four a thread so that a slow core does fewer; if their sum is out of balance, equal shares.
  const int64_t aligned = std::clamp(round_up(ceil_div(share, 4), group), group, std::max(group, most / group * group));
  const int64_t longest = ceil_div(ceil_div(panels, aligned), threads) * aligned;
  if (longest * 32 <= share * 33) return aligned;
  return std::min(ceil_div(share, ceil_div(share, most)), most);
}

int64_t quant_panels_per_task(int64_t panels, int threads) {
  const int64_t together = kQuantPanelsAtOnce, all = ceil_div(panels, together);
  // Neighbouring panels stay with one thread, which has already asked for the next ones; eight shares a thread even out the end.
  int64_t best = together * std::max<int64_t>(1, all / (8 * threads));
  const auto share = [&](int64_t task) { return busiest_share(1, panels, task, threads); };
  for (int64_t task = together / 2; task >= 1 && share(best) > kEven; task /= 2) {
    if (share(task) * kEven < share(best)) best = task;
  }
  return best;
}

double busiest_share(int64_t parts, int64_t panels, int64_t task_panels, int threads) {
  const int64_t tasks = parts * ceil_div(panels, task_panels);
  const auto busiest = static_cast<double>(ceil_div(tasks, threads) * task_panels);
  return busiest * threads / static_cast<double>(parts * panels);
}

RowParts divide_rows(int64_t rows, int64_t most_rows, int64_t panels, int threads, TaskPanels task_panels) {
  const int64_t fewest = ceil_div(rows, most_rows), most = std::max(fewest, rows / kFewestRows);
  RowParts best{fewest, 1};
  if (threads == 1 || most == 1) return best;  // there is no other
  double best_share = 0;
  const auto consider = [&](const RowParts& division) {
    const int64_t task = task_panels(ceil_div(rows, division.parts), share_of(threads, division.at_once));
    // The last region of several may have fewer parts.
    const int64_t regions = ceil_div(division.parts, division.at_once), last = division.parts - (regions - 1) * division.at_once;
    const double share =
        std::max(busiest_share(division.at_once, panels, task, threads), busiest_share(last, panels, task, threads));
    if (best_share == 0 || share * kEven < best_share) {
      best = division;
      best_share = share;
    }
    return best_share <= kEven;
  };
  if (consider(best)) return best;
  for (int64_t at_once = 2; at_once <= fewest; ++at_once) {
    if (consider({fewest, at_once})) return best;
  }
  for (int64_t parts = fewest + 1; parts <= most; ++parts) {
    if (consider({parts, parts})) return best;
  }
  return best;
}

}  // namespace choral::kernels
