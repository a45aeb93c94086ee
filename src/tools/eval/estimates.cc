#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tools/evaluation.h"

namespace choral::tools {

Estimate mean_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  if (values.empty()) return {};
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

Estimate mean_nll(std::span<const float> logprobs) {
  std::vector<double> nll(logprobs.size());
  std::transform(logprobs.begin(), logprobs.end(), nll.begin(), [](float logprob) { return -static_cast<double>(logprob); });
  return mean_of(nll);
}

Estimate perplexity(std::span<const float> logprobs) {
  const Estimate nll = mean_nll(logprobs);
  const double value = std::exp(nll.value);
  return {value, value * nll.error};
}

Estimate perplexity_ratio(std::span<const float> logprobs, std::span<const float> reference) {
  CHORAL_CHECK(logprobs.size() == reference.size(), "both are of the same tokens");
  std::vector<double> differences(logprobs.size());
  for (size_t i = 0; i < logprobs.size(); ++i)
    differences[i] = static_cast<double>(reference[i]) - static_cast<double>(logprobs[i]);
  const Estimate log_ratio = mean_of(differences);
  const double value = std::exp(log_ratio.value);
  return {value, value * log_ratio.error};
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto at = values.begin() + static_cast<ptrdiff_t>(below);
  std::nth_element(values.begin(), at, values.end());
  if (below + 1 == values.size()) return *at;
  const double above = *std::min_element(at + 1, values.end());
  return *at + (place - static_cast<double>(below)) * (above - *at);
}

}  // namespace choral::tools
