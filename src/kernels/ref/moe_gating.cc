#include "kernels/ref/moe_gating.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace choral::kernels::ref {
namespace {

// Indices by descending value, the lower one first among equals; narrows `gap` to the smallest difference other than 0 that
// decides about the first `count`.
std::vector<int32_t> ranked(const std::vector<double>& values, size_t count, double& gap) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  for (size_t i = 0; i < count && i + 1 < order.size(); ++i) {
    const double difference = values[order[i]] - values[order[i + 1]];
    if (difference > 0.0) gap = std::min(gap, difference);
  }
  order.resize(count);
  return order;
}

// Each in turn is the softmax of what is near it, of those that are left.
GatingChoice sparsely_mixed(std::span<const float> logits, const MoeGating& gating) {
  GatingChoice out{{}, {}, std::numeric_limits<double>::infinity()};
  std::vector<double> left(logits.begin(), logits.end());
  for (int64_t place = 0; place < gating.top_k; ++place) {
    const int32_t id = ranked(left, 1, out.gap).front();
    const double best = logits[id];
    double total = 0.0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isinf(left[i])) continue;
      const double distance = (best - logits[i]) / std::max(std::abs(static_cast<double>(logits[i])), best);
      out.gap = std::min(out.gap, std::abs(distance - 2.0 * gating.jitter));
      if (distance <= 2.0 * gating.jitter) total += std::exp(logits[i] - best);
    }
    out.ids.push_back(id);
    out.weights.push_back(1.0 / total);
    left[id] = -std::numeric_limits<double>::infinity();
  }
  return out;
}

}  // namespace

GatingChoice moe_gating_row(std::span<const float> logits, const MoeGating& gating) {
  if (gating.scoring == GateScoring::kSparseMixer) return sparsely_mixed(logits, gating);
  const size_t experts = logits.size(), width = experts / gating.groups;
  const auto k = static_cast<size_t>(gating.top_k);
  std::vector<double> score(experts), selection(experts);
  double total = 0.0;
  const double largest = *std::max_element(logits.begin(), logits.end());
  for (const float x : logits) total += std::exp(x - largest);
  for (size_t i = 0; i < experts; ++i) {
    score[i] =
        gating.scoring == GateScoring::kSoftmax ? std::exp(logits[i] - largest) / total : 1.0 / (1.0 + std::exp(-logits[i]));
    const bool by_logits = gating.scoring == GateScoring::kSigmoid && gating.groups == 1 && gating.selection_bias.empty();
    selection[i] = by_logits ? logits[i] : score[i] + (gating.selection_bias.empty() ? 0.0f : gating.selection_bias[i]);
  }
  GatingChoice out{{}, {}, std::numeric_limits<double>::infinity()};
  std::vector<double> group_scores;
  for (size_t g = 0; g < static_cast<size_t>(gating.groups); ++g) {
    std::vector<double> members(selection.begin() + g * width, selection.begin() + (g + 1) * width);
    std::sort(members.rbegin(), members.rend());
    group_scores.push_back(gating.group_score == GroupScore::kMax ? members[0] : members[0] + members[1]);
  }
  double ignored = 0.0;
  const auto kept = ranked(group_scores, gating.top_groups, gating.top_groups < gating.groups ? out.gap : ignored);
  for (size_t i = 0; i < experts; ++i) {
    if (std::find(kept.begin(), kept.end(), static_cast<int32_t>(i / width)) == kept.end()) {
      selection[i] = -std::numeric_limits<double>::infinity();
    }
  }
  out.ids = ranked(selection, k, out.gap);
  double sum = 0.0;
  for (const int32_t id : out.ids) sum += score[id];
  for (const int32_t id : out.ids) {
    const double scale = gating.expert_scale.empty() ? 1.0 : gating.expert_scale[id];
    out.weights.push_back(score[id] / (gating.renormalise ? sum + 1e-20 : 1.0) * gating.routed_scaling * scale);
  }
  return out;
}

}  // namespace choral::kernels::ref
