#include "tools/load/latencies.h"

#include <algorithm>
#include <cmath>

namespace choral::tools {
namespace {

constexpr double kLowest = 1e-6, kGrowth = 1.01;
constexpr size_t kBuckets = 2600;  // up to 1.7e5 s

}  // namespace

Latencies::Latencies() : buckets_(kBuckets) {}

void Latencies::add(double seconds) {
  seconds = std::max(seconds, 0.0);
  const double at = seconds <= kLowest ? 0 : std::log(seconds / kLowest) / std::log(kGrowth);
  ++buckets_[std::min(static_cast<size_t>(at), kBuckets - 1)];
  ++count_;
  sum_ += seconds;
  max_ = std::max(max_, seconds);
}

// The smallest duration that `share` of all do not exceed, as its bucket's middle.
double Latencies::quantile(double share) const {
  const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))));
  int64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= wanted) return std::min(max_, kLowest * std::pow(kGrowth, static_cast<double>(i) + 0.5));
  }
  return max_;
}

LatencySummary Latencies::summary() const {
  if (count_ == 0) return {};
  return {.count = count_,
          .mean = sum_ / static_cast<double>(count_),
          .p50 = quantile(0.5),
          .p90 = quantile(0.9),
          .p95 = quantile(0.95),
          .p99 = quantile(0.99),
          .max = max_};
}

}  // namespace choral::tools
