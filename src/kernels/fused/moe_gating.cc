#include "kernels/fused/moe_gating.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/moe_gating.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "kernels/activation/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Vectors of a row, the last one filled up with -inf; [i / lanes] of what is stored goes on to whole vectors.
HWY_INLINE VF load_logits(const float* x, int64_t i, int64_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (i + lanes <= count) return hn::LoadU(d, x + i);
  const auto rest = static_cast<size_t>(count - i);
  return hn::IfThenElse(hn::FirstN(d, rest), load_tail(x + i, rest), hn::Set(d, -kInfinity));
}

// score has room for whole vectors, and is 0 beyond `count`.
void softmax_scores(const float* logits, int64_t count, float* score) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VF largest = hn::Set(d, -kInfinity);
  for (int64_t i = 0; i < count; i += lanes) largest = hn::Max(load_logits(logits, i, count), largest);
  const VF max = hn::MaxOfLanes(d, largest);
  VF sums = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    // Beyond the row e^(-inf - max) is 0, and NaN only where the row is NaN anyway: max is -inf or not a number.
    const VF e = exp_negative(hn::Sub(load_logits(logits, i, count), max));
    hn::Store(e, d, score + i);
    sums = hn::Add(sums, e);
  }
  const VF sum = hn::SumOfLanes(d, sums);
  for (int64_t i = 0; i < count; i += lanes) hn::Store(hn::Div(hn::Load(d, score + i), sum), d, score + i);
}

void sigmoid_scores(const float* logits, int64_t count, float* score) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += lanes) {
    hn::Store(hn::Div(one, hn::Add(one, exp_full(hn::Neg(load_logits(logits, i, count))))), d, score + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>

#include "base/checked_math.h"
#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

constexpr int64_t kWidestVector = 64;  // floats; rows of scratch are whole vectors on any machine
constexpr float kLeastSum = 1e-20f;    // as DeepSeek-V3 renormalises

// The indices of the `k` largest of values[begin …) in descending order, the lower index first among equals; appended to the
// `found` that `best` holds already. Values are not NaN.
int64_t insert_largest(const float* values, int64_t begin, int64_t end, int64_t k, int32_t* best, int64_t found) {
  for (int64_t i = begin; i < end; ++i) {
    const float value = values[i];
    if (found == k && !(value > values[best[k - 1]])) continue;
    int64_t at = found < k ? found++ : k - 1;
    for (; at > 0 && value > values[best[at - 1]]; --at) best[at] = best[at - 1];
    best[at] = static_cast<int32_t>(i);
  }
  return found;
}

float group_score(const float* selection, int64_t count, GroupScore form) {
  float first = selection[0], second = -std::numeric_limits<float>::infinity();
  for (int64_t i = 1; i < count; ++i) {
    second = std::max(second, std::min(first, selection[i]));
    first = std::max(first, selection[i]);
  }
  return form == GroupScore::kMax ? first : first + second;
}

// Working memory of one thread.
struct Scratch {
  float* score;
  float* selection;
  float* group_scores;
  int32_t* best_groups;
};

void give_nan(int64_t k, int32_t* ids, float* weights) {
  for (int64_t i = 0; i < k; ++i) ids[i] = static_cast<int32_t>(i), weights[i] = std::numeric_limits<float>::quiet_NaN();
}

// Comparisons in float32, as transformers has them: they decide, and the same way here.
void mix_sparsely(const MoeGating& gating, const float* logits, int64_t experts, int32_t* ids, float* weights) {
  const int64_t k = gating.top_k;
  const auto unsound = [](float x) { return !(x < std::numeric_limits<float>::infinity()); };
  if (std::any_of(logits, logits + experts, unsound)) return give_nan(k, ids, weights);
  insert_largest(logits, 0, experts, k, ids, 0);
  for (int64_t s = 0; s < k; ++s) {
    const float best = logits[ids[s]];
    if (best == -std::numeric_limits<float>::infinity()) return give_nan(k, ids, weights);
    float sum = 0.0f;
    for (int64_t i = 0; i < experts; ++i) {
      if (std::find(ids, ids + s, i) != ids + s) continue;
      const float scale = std::max(std::abs(logits[i]), best);
      if (!((best - logits[i]) / scale > 2 * gating.jitter)) sum += std::exp(logits[i] - best);
    }
    weights[s] = 1 / sum;
  }
}

void choose(const MoeGating& gating, const float* logits, int64_t experts, const Scratch& s, int32_t* ids, float* weights) {
  const int64_t k = gating.top_k;
  const bool by_logits = gating.scoring == GateScoring::kSigmoid && gating.groups == 1;
  const float* selection = by_logits ? logits : s.score;
  bool nan = false;
  if (!gating.selection_bias.empty()) {
    for (int64_t i = 0; i < experts; ++i) s.selection[i] = s.score[i] + gating.selection_bias[i];
    selection = s.selection;
  }
  for (int64_t i = 0; i < experts; ++i) nan |= selection[i] != selection[i];
  if (nan) return give_nan(k, ids, weights);
  if (gating.groups == gating.top_groups) {
    insert_largest(selection, 0, experts, k, ids, 0);
  } else {
    const int64_t width = experts / gating.groups;
    for (int64_t g = 0; g < gating.groups; ++g) s.group_scores[g] = group_score(selection + g * width, width, gating.group_score);
    insert_largest(s.group_scores, 0, gating.groups, gating.top_groups, s.best_groups, 0);
    std::sort(s.best_groups, s.best_groups + gating.top_groups);  // so that the lower index comes first
    int64_t found = 0;
    for (int64_t g = 0; g < gating.top_groups; ++g) {
      const int64_t begin = s.best_groups[g] * width;
      found = insert_largest(selection, begin, begin + width, k, ids, found);
    }
  }
  float sum = 0.0f;
  for (int64_t i = 0; i < k; ++i) sum += s.score[ids[i]];
  const float divisor = gating.renormalise ? sum + kLeastSum : 1.0f;
  for (int64_t i = 0; i < k; ++i) weights[i] = s.score[ids[i]] / divisor * gating.routed_scaling;
  if (gating.expert_scale.empty()) return;
  for (int64_t i = 0; i < k; ++i) weights[i] *= gating.expert_scale[ids[i]];
}

}  // namespace

void moe_gating_top_k(const Context& ctx, MatrixView<const float> logits, const MoeGating& gating, MatrixView<int32_t> ids,
                      MatrixView<float> weights) {
  const int64_t experts = logits.cols;
  CHORAL_CHECK(gating.groups >= 1 && experts % gating.groups == 0 && gating.top_groups >= 1 &&
                   gating.top_groups <= gating.groups && gating.top_k >= 1 &&
                   gating.top_k <= gating.top_groups * (experts / gating.groups) &&
                   (gating.group_score == GroupScore::kMax || experts / gating.groups >= 2),
               "the groups of a router divide its experts and hold top_k of them");
  CHORAL_CHECK(ids.rows == logits.rows && weights.rows == logits.rows && ids.cols == gating.top_k &&
                   weights.cols == gating.top_k &&
                   (gating.selection_bias.empty() || std::ssize(gating.selection_bias) == experts) &&
                   (gating.expert_scale.empty() || std::ssize(gating.expert_scale) == experts),
               "logits, bias, scales, ids and weights of a router fit");
  CHORAL_CHECK(gating.scoring != GateScoring::kSparseMixer ||
                   (gating.groups == 1 && gating.selection_bias.empty() && gating.expert_scale.empty()),
               "a sparse mixer has neither groups nor a bias");
  const auto scores = gating.scoring == GateScoring::kSoftmax ? CHORAL_AT_LEVEL(ctx.level, softmax_scores)
                                                              : CHORAL_AT_LEVEL(ctx.level, sigmoid_scores);
  const Arena::Mark mark(ctx.scratch);
  const int64_t padded = round_up(experts, kWidestVector), threads = ctx.pool.size();
  const auto floats = ctx.scratch.make<float>(threads * 3 * padded);
  const auto groups = ctx.scratch.make<int32_t>(threads * gating.groups);
  ctx.pool.parallel_for(logits.rows, pieces_per_task(kMediumTask, experts), [&](int64_t begin, int64_t end, int thread) {
    float* row = floats.data() + thread * 3 * padded;
    const Scratch scratch{row, row + padded, row + 2 * padded, groups.data() + thread * gating.groups};
    for (int64_t t = begin; t < end; ++t) {
      if (gating.scoring == GateScoring::kSparseMixer) {
        mix_sparsely(gating, logits.row(t), experts, ids.row(t), weights.row(t));
        continue;
      }
      scores(logits.row(t), experts, scratch.score);
      choose(gating, logits.row(t), experts, scratch, ids.row(t), weights.row(t));
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
