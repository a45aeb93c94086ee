// Durations in buckets that grow by 1 %: percentiles to half a per cent, mean and maximum exact, always the same small memory.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/load_generator.h"

namespace choral::tools {

class Latencies {
 public:
  Latencies();
  void add(double seconds);
  LatencySummary summary() const;

 private:
  double quantile(double share) const;

  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  double sum_ = 0, max_ = 0;
};

}  // namespace choral::tools
