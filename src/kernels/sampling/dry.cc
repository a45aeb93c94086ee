#include "kernels/sampling/dry.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace choral::kernels {
namespace {

// No logit of a sound model is as large, so that a penalised token is behind all others, and not removed: it may be the only one
// that a grammar allows.
constexpr float kMostPenalty = 1e9f;

// `tokens` counted from the last one.
class Backwards {
 public:
  explicit Backwards(std::span<const int32_t> tokens) : tokens_(tokens) {}
  int64_t size() const { return std::ssize(tokens_); }
  int32_t operator[](int64_t i) const { return tokens_[static_cast<size_t>(size() - 1 - i)]; }

 private:
  std::span<const int32_t> tokens_;
};

std::span<const DryBreaker> breakers_of(int32_t token, std::span<const DryBreaker> breakers) {
  const auto [begin, end] = std::equal_range(breakers.begin(), breakers.end(), DryBreaker{token, {}},
                                             [](const DryBreaker& a, const DryBreaker& b) { return a.token < b.token; });
  return breakers.subspan(static_cast<size_t>(begin - breakers.begin()), static_cast<size_t>(end - begin));
}

// Tokens behind the last breaker: no repetition is longer.
int64_t behind_breaker(const Backwards& last, std::span<const DryBreaker> breakers) {
  for (int64_t i = 0; i < last.size(); ++i) {
    int64_t longest = -1;
    for (const DryBreaker& breaker : breakers_of(last[i], breakers)) {
      const auto length = std::ssize(breaker.rest);
      if (length <= longest || length > i) continue;
      const auto is_next = [&, at = i](int32_t token) mutable { return token == last[--at]; };
      if (std::all_of(breaker.rest.begin(), breaker.rest.end(), is_next)) longest = length;
    }
    if (longest >= 0) return i - longest;
  }
  return last.size();
}

// lengths[i]: how many of the last tokens stand before the i-th last one too (the Z function of the tokens read backwards).
void repeated_lengths(const Backwards& last, std::span<int32_t> lengths) {
  const int64_t count = last.size();
  lengths[0] = 0;
  for (int64_t i = 1, left = 0, right = 0; i < count; ++i) {
    int64_t n = i < right ? std::min<int64_t>(right - i, lengths[static_cast<size_t>(i - left)]) : 0;
    while (i + n < count && last[n] == last[i + n]) ++n;
    if (i + n > right) left = i, right = i + n;
    lengths[static_cast<size_t>(i)] = static_cast<int32_t>(n);
  }
}

float penalty_of(int64_t length, const DrySettings& settings) {
  const double exponent = static_cast<double>(length - settings.allowed_length);
  const double penalty = static_cast<double>(settings.multiplier) * std::pow(static_cast<double>(settings.base), exponent);
  return static_cast<float>(std::min(penalty, static_cast<double>(kMostPenalty)));
}

}  // namespace

std::span<const TokenPenalty> dry_penalties(std::span<const int32_t> tokens, const DrySettings& settings,
                                            std::span<const DryBreaker> breakers, Arena& scratch) {
  if (!is_on(settings)) return {};
  if (settings.last_n >= 0) tokens = tokens.last(std::min(tokens.size(), static_cast<size_t>(settings.last_n)));
  const Backwards last(tokens);
  const int64_t count = last.size();
  if (count <= settings.allowed_length) return {};
  const int64_t longest = behind_breaker(last, breakers);
  if (longest < settings.allowed_length) return {};
  // By powers of two, so that a longer answer seldom needs more memory.
  const auto lengths = scratch.make<int32_t>(std::bit_ceil(tokens.size())).first(tokens.size());
  repeated_lengths(last, lengths);
  const auto repeats = [&](int64_t i) { return std::min<int64_t>(lengths[static_cast<size_t>(i)], longest); };
  size_t found = 0;
  for (int64_t i = 1; i < count; ++i) found += repeats(i) >= settings.allowed_length ? 1 : 0;
  if (found == 0) return {};
  struct Repeat {
    int32_t token;
    int32_t length;
  };
  const auto all = scratch.make<Repeat>(std::bit_ceil(found)).first(found);
  size_t filled = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (repeats(i) >= settings.allowed_length) all[filled++] = {last[i - 1], static_cast<int32_t>(repeats(i))};
  }
  std::sort(all.begin(), all.end(),
            [](const Repeat& a, const Repeat& b) { return a.token != b.token ? a.token < b.token : a.length > b.length; });
  const auto penalties = scratch.make<TokenPenalty>(std::bit_ceil(found)).first(found);
  size_t given = 0;
  for (const Repeat& repeat : all) {
    if (given > 0 && penalties[given - 1].token == repeat.token) continue;
    const auto own = breakers_of(repeat.token, breakers);
    if (std::any_of(own.begin(), own.end(), [](const DryBreaker& breaker) { return breaker.rest.empty(); })) continue;
    penalties[given++] = {repeat.token, penalty_of(repeat.length, settings)};
  }
  return penalties.first(given);
}

}  // namespace choral::kernels
