#include "kernels/ref/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace choral::kernels::ref {
namespace {

RowOutcome outcome_of(std::span<const float> logits) {
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) return RowOutcome::kNaN;
  const float max = *std::max_element(logits.begin(), logits.end());
  if (std::isinf(max)) return max > 0 ? RowOutcome::kInfinity : RowOutcome::kNothingLeft;
  return RowOutcome::kToken;
}

int32_t token_of(std::span<const float> logits, const RowSampling& row) {
  if (row.temperature < kGreedyTemperature) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const auto p = probabilities(logits, {row.temperature, row.top_k, row.top_p, row.min_p});
  double sum = 0;
  int32_t last = -1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    last = static_cast<int32_t>(i);
    sum += p[i];
    if (sum > row.uniform) break;
  }
  return last;
}

std::vector<int32_t> most_likely(std::span<const float> logits, int32_t count) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -std::numeric_limits<float>::infinity()) order.push_back(static_cast<int32_t>(i));  // false for NaN
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(count)));
  return order;
}

RowChoice sample_row(std::span<float> logits, const RowSampling& row, const SampledRows& sampled) {
  const std::vector<float> raw(logits.begin(), logits.end());
  const double log_sum = row.wants_logprob != 0 ? log_sum_exp(raw) : 0;
  RowChoice choice;
  if (row.wants_logprob != 0) {
    const auto tokens = row.named_begin < 0 ? most_likely(raw, row.top_count)
                                            : std::vector<int32_t>(sampled.named.begin() + row.named_begin,
                                                                   sampled.named.begin() + row.named_begin + row.top_count);
    for (const int32_t t : tokens) sampled.top[row.top_begin + choice.top_count++] = {t, named_logprob(raw, log_sum, t)};
  }
  edit_row(logits, row, sampled);
  choice.outcome = outcome_of(logits);
  if (choice.outcome != RowOutcome::kToken) return choice;
  choice.token = token_of(logits, row);
  if (row.wants_logprob != 0) choice.logprob = named_logprob(raw, log_sum, choice.token);
  return choice;
}

}  // namespace

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

void sample_rows(MatrixView<float> logits, const SampledRows& sampled) {
  for (int64_t i = 0; i < logits.rows; ++i) {
    const RowSampling& row = sampled.rows[i];
    sampled.choices[i] = sample_row(logits.row_span(i).first(row.vocab), row, sampled);
  }
}

}  // namespace choral::kernels::ref
