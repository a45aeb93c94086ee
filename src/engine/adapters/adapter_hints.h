// "Did you mean …?" for names of adapters: the nearest among known names and folders of the root. Unknown names come from
// anybody, at any rate. So a few of them a second get hints and the others none, and the root is listed anew only when it
// changed, at most once a second. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "choral/llm.h"

namespace choral::engine {

// So many hints within one second.
class HintBudget {
 public:
  static constexpr int64_t kHintsPerSecond = 20;

  explicit HintBudget(Clock clock = now_s) : clock_(std::move(clock)) {}
  bool take();

 private:
  const Clock clock_;
  std::mutex mutex_;
  double begin_s_ = 0;  // of the second
  int64_t taken_ = 0;
};

class AdapterHints {
 public:
  // `root`: empty for none.
  explicit AdapterHints(std::string root, Clock clock = now_s) : root_(std::move(root)), clock_(clock), budget_(clock) {}

  // Empty: none is near, or too many were asked for.
  std::string nearest(std::string_view name, const AdapterNameList& known);
  int64_t root_listings() const;

 private:
  using Names = std::vector<std::string>;
  std::shared_ptr<const Names> names_in_root();

  const std::string root_;
  const Clock clock_;
  HintBudget budget_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Names> in_root_;  // null: it was not listed yet
  int64_t root_changed_ns_ = 0;           // when it was listed
  double looked_s_ = 0;
  int64_t root_listings_ = 0;
};

}  // namespace choral::engine
