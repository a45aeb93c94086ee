#include "kernels/fused/expert_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/expert_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// y (+)= Σ_s weights[s] · x[places[s]]
void combine_row(MatrixView<const float> x, const int32_t* places, const float* weights, int64_t slots, bool add, float* y) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= x.cols; i += lanes) {
    VF sum = add ? hn::LoadU(d, y + i) : hn::Zero(d);
    for (int64_t s = 0; s < slots; ++s) sum = hn::MulAdd(hn::Set(d, weights[s]), hn::LoadU(d, x.row(places[s]) + i), sum);
    hn::StoreU(sum, d, y + i);
  }
  if (i == x.cols) return;
  const auto rest = static_cast<size_t>(x.cols - i);
  VF sum = add ? load_tail(y + i, rest) : hn::Zero(d);
  for (int64_t s = 0; s < slots; ++s) sum = hn::MulAdd(hn::Set(d, weights[s]), load_tail(x.row(places[s]) + i, rest), sum);
  store_tail(sum, y + i, rest);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {

ExpertRows sort_by_expert(MatrixView<const int32_t> ids, int64_t experts, Arena& scratch) {
  const int64_t slots = ids.rows * ids.cols;
  const ExpertRows sorted{scratch.make<int32_t>(slots), scratch.make<int64_t>(experts), scratch.make<int32_t>(slots)};
  std::fill(sorted.ends.begin(), sorted.ends.end(), 0);
  for (int64_t t = 0; t < ids.rows; ++t) {
    for (const int32_t id : ids.row_span(t)) ++sorted.ends[id];
  }
  // From counts to where each expert's rows begin; giving out a row moves its begin on, to its end at last.
  int64_t begin = 0;
  for (int64_t& end : sorted.ends) {
    const int64_t count = end;
    end = begin;
    begin += count;
  }
  auto place = sorted.places.begin();
  for (int64_t t = 0; t < ids.rows; ++t) {
    for (const int32_t id : ids.row_span(t)) {
      const int64_t row = sorted.ends[id]++;
      sorted.tokens[row] = static_cast<int32_t>(t);
      *place++ = static_cast<int32_t>(row);
    }
  }
  return sorted;
}

void combine_experts(const Context& ctx, MatrixView<const float> x, std::span<const int32_t> places,
                     MatrixView<const float> weights, bool add, MatrixView<float> y) {
  CHORAL_CHECK(std::ssize(places) == weights.rows * weights.cols && y.rows == weights.rows && y.cols == x.cols,
               "places, weights and rows of experts fit");
  const auto row = CHORAL_AT_LEVEL(ctx.level, combine_row);
  ctx.pool.parallel_for(y.rows, pieces_per_task(kMediumTask, y.cols * weights.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) row(x, &places[t * weights.cols], weights.row(t), weights.cols, add, y.row(t));
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
