#include "tools/eval/row_scores.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/sampling/sampling.h"

namespace choral::tools {

RowScore score_row(CpuLevel level, std::span<const float> logits, int32_t next) {
  RowScore score;
  score.logprob = static_cast<float>(static_cast<double>(logits[next]) - kernels::log_sum_exp(level, logits));
  if (const auto top = kernels::argmax_token(level, logits); top.ok()) score.top = *top;
  return score;
}

// With p = e^a / P and q = e^b / Q: Σ e^a·(a − b) / P − log P + log Q; a and b are taken from their largest.
double kl_divergence(std::span<const float> reference, std::span<const float> logits) {
  CHORAL_CHECK(reference.size() == logits.size() && !logits.empty(), "both rows are of one vocabulary");
  const double a_top = *std::max_element(reference.begin(), reference.end());
  const double b_top = *std::max_element(logits.begin(), logits.end());
  double p_sum = 0, q_sum = 0, weighed = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double a = static_cast<double>(reference[i]) - a_top, b = static_cast<double>(logits[i]) - b_top;
    const double p = std::exp(a);
    p_sum += p;
    q_sum += std::exp(b);
    if (p > 0) weighed += p * (a - b);
  }
  return std::max(weighed / p_sum - std::log(p_sum) + std::log(q_sum), 0.0);  // it is none below; its last bits may be
}

}  // namespace choral::tools
