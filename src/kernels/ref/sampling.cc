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

// Zero for the tokens that top_n_sigma removes, else one.
std::vector<double> within_sigmas(std::span<const float> logits, float n) {
  std::vector<double> kept(logits.size(), 1.0);
  if (!(n > 0)) return kept;
  std::vector<double> there;
  for (const float l : logits) {
    if (!std::isinf(l)) there.push_back(l);
  }
  const double count = static_cast<double>(there.size());
  const double mean = std::accumulate(there.begin(), there.end(), 0.0) / count;
  double variance = 0;
  for (const double l : there) variance += (l - mean) * (l - mean) / count;
  const double max = *std::max_element(there.begin(), there.end());
  for (size_t i = 0; i < logits.size(); ++i) kept[i] = logits[i] >= static_cast<float>(max - n * std::sqrt(variance)) ? 1.0 : 0.0;
  return kept;
}

// Of the tokens that have weight in `p`, without temperature.
std::vector<double> plain(std::span<const float> logits, const std::vector<double>& p) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> q(p.size());
  for (size_t i = 0; i < q.size(); ++i) q[i] = p[i] > 0 ? std::exp(logits[i] - max) : 0.0;
  const double sum = std::accumulate(q.begin(), q.end(), 0.0);
  for (double& x : q) x /= sum;
  return q;
}

void keep_typical(std::span<const float> logits, float typical_p, std::vector<double>& p) {
  if (!(typical_p < 1)) return;
  const auto q = plain(logits, p);
  double entropy = 0;
  for (const double x : q) entropy -= x > 0 ? x * std::log(x) : 0.0;
  std::vector<size_t> order;
  for (size_t i = 0; i < q.size(); ++i) {
    if (q[i] > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(-std::log(q[a]) - entropy) < std::abs(-std::log(q[b]) - entropy); });
  double sum = 0;
  for (const size_t i : order) {
    if (sum > typical_p) p[i] = 0;
    sum += q[i];
  }
}

void drop_likeliest(std::span<const float> logits, float threshold, std::vector<double>& p) {
  if (threshold > 0.5f) return;
  const auto q = plain(logits, p);
  std::vector<size_t> top;
  for (size_t i = 0; i < q.size(); ++i) {
    if (q[i] > 0 && q[i] >= threshold) top.push_back(i);
  }
  std::stable_sort(top.begin(), top.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  for (size_t i = 0; i + 1 < top.size(); ++i) p[top[i]] = 0;
}

}  // namespace

std::vector<double> probabilities(std::span<const float> logits, const SamplingSettings& settings) {
  const auto vocab = std::ssize(logits);
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  for (int64_t i = 0; i < vocab; ++i) p[i] = std::exp((logits[i] - max) / settings.temperature);
  for (double& x : p) x = x >= settings.min_p ? x : 0.0;
  const auto within = within_sigmas(logits, settings.top_n_sigma);
  for (size_t i = 0; i < p.size(); ++i) p[i] *= within[i];

  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (settings.top_k > 0 && settings.top_k < vocab) {
    const float kth = logits[order[settings.top_k - 1]];
    for (int64_t i = 0; i < vocab; ++i) p[i] = logits[i] >= kth ? p[i] : 0.0;
  }
  keep_typical(logits, settings.typical_p, p);
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0.0;
  for (const int64_t i : order) {
    const double weight = p[i];
    if (settings.top_p < 1.0f && before >= settings.top_p * total && before > 0.0) p[i] = 0.0;
    before += weight;
  }
  drop_likeliest(logits, settings.xtc_threshold, p);
  const double kept = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= kept;
  return p;
}

std::vector<double> dry_penalties(std::span<const int32_t> tokens, const DrySettings& settings,
                                  std::span<const DryBreaker> breakers, size_t vocab) {
  std::vector<double> penalties(vocab);
  const size_t window = settings.last_n < 0 ? tokens.size() : std::min(tokens.size(), static_cast<size_t>(settings.last_n));
  tokens = tokens.last(window);
  // The last breaker, and of several that begin there the longest.
  size_t longest = window;
  for (size_t begin = window; begin-- > 0 && longest == window;) {
    for (const auto& breaker : breakers) {
      std::vector<int32_t> whole = {breaker.token};
      whole.insert(whole.end(), breaker.rest.begin(), breaker.rest.end());
      const auto here = tokens.subspan(begin, std::min(whole.size(), window - begin));
      if (std::equal(here.begin(), here.end(), whole.begin(), whole.end()))
        longest = std::min(longest, window - begin - whole.size());
    }
  }
  for (size_t next = 1; next < window; ++next) {  // the token there would follow, and tokens before it are repeated
    size_t length = 0;
    while (length < next && length < longest && tokens[next - 1 - length] == tokens[window - 1 - length]) ++length;
    const bool is_breaker = std::any_of(breakers.begin(), breakers.end(), [&](const DryBreaker& breaker) {
      return breaker.token == tokens[next] && breaker.rest.empty();
    });
    if (is_breaker || static_cast<int64_t>(length) < settings.allowed_length) continue;
    const double penalty =
        settings.multiplier * std::pow(double{settings.base}, static_cast<double>(length) - settings.allowed_length);
    double& all = penalties[static_cast<size_t>(tokens[next])];
    all = std::max(all, penalty);
  }
  return penalties;
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
