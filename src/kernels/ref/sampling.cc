#include "kernels/ref/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace choral::kernels::ref {

std::vector<double> probabilities(std::span<const float> logits, const SamplingSettings& settings) {
  const auto vocab = std::ssize(logits);
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  for (int64_t i = 0; i < vocab; ++i) p[i] = std::exp((logits[i] - max) / settings.temperature);
  for (double& x : p) x = x >= settings.min_p ? x : 0.0;

  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (settings.top_k > 0 && settings.top_k < vocab) {
    const float kth = logits[order[settings.top_k - 1]];
    for (int64_t i = 0; i < vocab; ++i) p[i] = logits[i] >= kth ? p[i] : 0.0;
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0.0;
  for (const int64_t i : order) {
    const double weight = p[i];
    if (settings.top_p < 1.0f && before >= settings.top_p * total && before > 0.0) p[i] = 0.0;
    before += weight;
  }
  const double kept = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= kept;
  return p;
}

double log_sum_exp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum);
}

}  // namespace choral::kernels::ref
