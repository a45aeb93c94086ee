// The least index that threads found together: the row that an error names, whoever came upon it. found() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>

namespace choral {

class FirstFound {
 public:
  void found(int64_t index) {
    for (int64_t known = first_.load(); index < known && !first_.compare_exchange_weak(known, index);) continue;
  }
  // When the threads are done.
  std::optional<int64_t> index() const {
    const int64_t first = first_.load();
    return first == kNone ? std::nullopt : std::optional(first);
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_ = kNone;
};

}  // namespace choral
