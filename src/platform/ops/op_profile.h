// Where a step's time goes: calls and seconds of each operator, and what its linear layers read and multiply, filled while
// Context::profile points here.
// Engine thread only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace choral::platform {

class OpProfile {
 public:
  struct Entry {
    std::string_view name;
    int64_t calls = 0;
    double seconds = 0;
  };

  void add(std::string_view name, double seconds);
  // By a linear layer, of its packed weights: those of experts that no row came to are not read.
  void add_product(double weight_bytes, double flops) {
    weight_bytes_ += weight_bytes;
    flops_ += flops;
  }
  const std::vector<Entry>& entries() const { return entries_; }
  double seconds_of(std::string_view name) const;  // 0 when it was never called
  double weight_bytes() const { return weight_bytes_; }
  double flops() const { return flops_; }

 private:
  std::vector<Entry> entries_;
  double weight_bytes_ = 0, flops_ = 0;
};

}  // namespace choral::platform
