#include "lora/joined_targets.h"

#include <algorithm>
#include <memory>

namespace choral::lora {
namespace {

// One target of all ranks.
using Parts = std::vector<const LoRATarget*>;

Status read_row(const Parts& parts, int64_t row, std::span<float> out) {
  for (const LoRATarget* part : parts) {
    for (const auto& [of, at, count] : part->held) {
      if (row >= of && row < of + count) return part->base_row(at + row - of, out);
    }
  }
  return internal_error("no rank holds row {}", row);
}

std::vector<float> join_bias(const Parts& parts, int64_t outputs) {
  std::vector<float> joined;
  for (const LoRATarget* part : parts) {
    const auto own = part->base_bias();
    if (own.empty()) continue;
    joined.resize(static_cast<size_t>(outputs));
    for (const auto& [of, at, count] : part->held) std::copy_n(own.begin() + at, count, joined.begin() + of);
  }
  return joined;
}

// Columns of `outputs` that no part holds.
std::vector<HeldColumns> not_held(const Parts& parts, int64_t outputs) {
  std::vector<HeldColumns> held, missing;
  for (const LoRATarget* part : parts) held.insert(held.end(), part->held.begin(), part->held.end());
  std::sort(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.of < b.of; });
  int64_t end = 0;
  const auto miss_until = [&](int64_t next) {
    if (next > end) missing.push_back({end, 0, next - end});
  };
  for (const auto& [of, at, count] : held) {
    miss_until(of);
    end = std::max(end, of + count);
  }
  miss_until(outputs);
  return missing;
}

}  // namespace

std::vector<LoRATarget> join_targets(std::span<const std::span<const LoRATarget>> ranks) {
  std::vector<LoRATarget> joined(ranks.front().begin(), ranks.front().end());
  for (size_t i = 0; i < joined.size(); ++i) {
    LoRATarget& target = joined[i];
    if (target.held.empty()) continue;
    target.held.clear();
    Parts parts;
    for (const auto& rank : ranks) parts.push_back(&rank[i]);
    target.elsewhere = not_held(parts, target.out());
    if (target.base_bias) {
      const auto bias = std::make_shared<const std::vector<float>>(join_bias(parts, target.out()));
      target.base_bias = [bias] { return std::span<const float>(*bias); };
    }
    target.base_row = [parts = std::move(parts)](int64_t row, std::span<float> out) { return read_row(parts, row, out); };
  }
  return joined;
}

}  // namespace choral::lora
