#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/sampling/sampled_rows.h"
#include "kernels/sampling/sampling_scan.h"

namespace choral::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  float weight;  // e^((logit − max) / temperature)
  int32_t token;
};

// More likely first, ties to the lower id: a strict order, so what is selected does not depend on the algorithm.
bool before(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.token < b.token; }

Result<RowExtreme> checked_extreme(const LogitScan& scan, std::span<const float> logits) {
  const RowExtreme e = scan.extreme(logits.data(), std::ssize(logits));
  if (const RowOutcome outcome = outcome_of(e); outcome != RowOutcome::kToken) return status_of(outcome);
  return e;  // an empty row's largest is −inf
}

// One row on its way through the filters. top_n_sigma, min_p, top_k and top_p keep a prefix of the row in the order of before();
// `threshold` and, once candidates are collected, `last` say where it ends. Behind typical_p and XTC the candidates are all that
// is left.
class Selection {
 public:
  Selection(CpuLevel level, std::span<const float> logits, float max, float temperature, Arena& scratch)
      : scan_(logit_scan(level)),
        logits_(logits),
        max_(max),
        temperature_(temperature),
        scale_(1.0f / temperature),
        scratch_(scratch) {}

  void top_n_sigma(float n) {
    if (!(n > 0.0f)) return;
    double sum = 0.0, squares = 0.0;
    int64_t count = 0;
    for (const float l : logits_) {
      if (l == -kInfinity) continue;
      sum += static_cast<double>(l), ++count;
    }
    const double mean = sum / static_cast<double>(count);
    for (const float l : logits_) {
      if (l != -kInfinity) squares += (static_cast<double>(l) - mean) * (static_cast<double>(l) - mean);
    }
    const double sigma = std::sqrt(squares / static_cast<double>(count));
    threshold_ = std::max(threshold_, static_cast<float>(static_cast<double>(max_) - static_cast<double>(n) * sigma));
  }

  void min_p(float p) {
    if (p > 0.0f) threshold_ = std::max(threshold_, max_ + std::log(std::min(p, 1.0f)) * temperature_);
  }

  void top_k(int32_t k) {
    if (k <= 0 || k >= size()) return;
    collect_until([&] { return std::ssize(candidates_) >= k; });
    if (std::ssize(candidates_) < k) return;  // min_p left fewer
    const auto sorted = copy_of_candidates();
    std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), before);
    threshold_ = sorted[k - 1].logit;
    const auto end =
        std::remove_if(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return c.logit < threshold_; });
    candidates_ = candidates_.first(end - candidates_.begin());
    complete_ = true;
  }

  void typical_p(float p) {
    if (!(p < 1.0f)) return;
    collect_all();
    const auto plain = plain_weights();
    const double total = std::accumulate(plain.begin(), plain.end(), 0.0);
    double entropy = std::log(total);
    for (size_t i = 0; i < plain.size(); ++i) entropy -= plain[i] / total * static_cast<double>(candidates_[i].logit - max_);
    struct Surprise {
      double from_mean;
      uint32_t place;
    };
    const auto order = scratch_.make<Surprise>(candidates_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const double surprise = std::log(total) - static_cast<double>(candidates_[i].logit - max_);
      order[i] = {std::abs(surprise - entropy), static_cast<uint32_t>(i)};
    }
    std::sort(order.begin(), order.end(), [](const Surprise& a, const Surprise& b) {
      return a.from_mean != b.from_mean ? a.from_mean < b.from_mean : a.place < b.place;
    });
    size_t kept = 0;
    for (double sum = 0.0; kept < order.size() && sum <= static_cast<double>(p) * total; ++kept) sum += plain[order[kept].place];
    for (const Surprise& s : order.subspan(kept)) candidates_[s.place].token = kDropped;
    keep_undropped();
  }

  void xtc(float threshold) {
    if (!(threshold <= 0.5f)) return;
    collect_all();
    for (Candidate& c : candidates_) c.token = kept(c) ? c.token : kDropped;
    keep_undropped();
    const auto plain = plain_weights();
    const double least = static_cast<double>(threshold) * std::accumulate(plain.begin(), plain.end(), 0.0);
    const Candidate* stays = nullptr;
    for (size_t i = 0; i < plain.size(); ++i) {
      if (plain[i] >= least && (stays == nullptr || before(*stays, candidates_[i]))) stays = &candidates_[i];
    }
    if (stays == nullptr) return;
    const Candidate first = *stays;
    for (Candidate& c : candidates_) c.token = before(c, first) ? kDropped : c.token;
    keep_undropped();
  }

  void top_p(float p) {
    if (!(p < 1.0f)) return;
    const double all = is_list_ ? weight(candidates_) : scan_.mass(logits_.data(), size(), max_, scale_, threshold_, nullptr);
    const double target = static_cast<double>(std::max(p, 0.0f)) * all;
    if (candidates_.empty() || !complete_) collect_until([&] { return weight(candidates_) >= target; });
    last_ = end_of_mass(copy_of_candidates(), target);
    has_last_ = true;
  }

  int32_t draw(double uniform) { return candidates_.empty() ? draw_from_row(uniform) : draw_from_candidates(uniform); }

 private:
  int64_t size() const { return std::ssize(logits_); }

  static double weight(std::span<const Candidate> candidates) {
    double sum = 0.0;
    for (const Candidate& c : candidates) sum += static_cast<double>(c.weight);
    return sum;
  }

  // Collects tokens from the top downwards, twice as far at each try, until they are enough or the threshold is reached.
  template <class Enough>
  void collect_until(Enough enough) {
    const auto tokens = scratch_.make<int32_t>(logits_.size());
    const auto gathered = scratch_.make<float>(2 * logits_.size());
    const auto storage = scratch_.make<Candidate>(logits_.size());
    for (float nats = 4.0f;; nats *= 2.0f) {
      const float wanted = max_ - nats * temperature_;
      complete_ = nats > 32.0f || wanted <= threshold_;
      const float from = complete_ ? threshold_ : wanted;
      const int64_t count = scan_.collect(logits_.data(), size(), from, tokens.data());
      const auto logits = gathered.first(count), weights = gathered.subspan(logits_.size());
      for (int64_t i = 0; i < count; ++i) logits[i] = logits_[tokens[i]];
      scan_.terms(logits.data(), count, max_, scale_, from, weights.data());
      for (int64_t i = 0; i < count; ++i) storage[i] = {logits[i], weights[i], tokens[i]};
      candidates_ = storage.first(count);
      if (complete_ || enough()) return;
    }
  }

  void collect_all() {
    if (candidates_.empty() || !complete_) collect_until([] { return false; });
  }

  // Of the candidates, before temperature.
  std::span<const double> plain_weights() {
    const auto weights = scratch_.make<double>(candidates_.size());
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::exp(static_cast<double>(candidates_[i].logit - max_));
    return weights;
  }

  // Weights are those of the likeliest that is left, so that a low temperature does not make them all 0.
  void keep_undropped() {
    const auto end =
        std::remove_if(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return c.token == kDropped; });
    candidates_ = candidates_.first(end - candidates_.begin());
    float largest = -kInfinity;
    for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
    for (Candidate& c : candidates_) c.weight = std::exp((c.logit - largest) * scale_);
    is_list_ = true;
    has_last_ = false;
  }

  std::span<Candidate> copy_of_candidates() {
    const auto copy = scratch_.make<Candidate>(candidates_.size());
    std::copy(candidates_.begin(), candidates_.end(), copy.begin());
    return copy;
  }

  // The last of the most likely candidates whose weight first reaches `target`. Halves the range by selection: linear time in
  // all.
  static Candidate end_of_mass(std::span<Candidate> c, double target) {
    double before_range = 0.0;
    while (c.size() > 1) {
      const size_t middle = c.size() / 2;
      std::nth_element(c.begin(), c.begin() + static_cast<std::ptrdiff_t>(middle), c.end(), before);
      const double left = weight(c.first(middle));
      if (before_range + left >= target) {
        c = c.first(middle);
      } else {
        before_range += left;
        c = c.subspan(middle);
      }
    }
    return c.front();
  }

  bool kept(const Candidate& c) const { return !has_last_ || !before(last_, c); }

  int32_t draw_from_candidates(double uniform) const {
    double total = 0.0;
    for (const Candidate& c : candidates_) total += kept(c) ? static_cast<double>(c.weight) : 0.0;
    const double wanted = uniform * total;
    double sum = 0.0;
    int32_t chosen = -1;
    for (const Candidate& c : candidates_) {
      if (!kept(c) || c.weight == 0.0f) continue;
      chosen = c.token;
      sum += static_cast<double>(c.weight);
      if (sum > wanted) break;
    }
    return chosen;
  }

  int32_t draw_from_row(double uniform) {
    const auto sums = scratch_.make<double>((logits_.size() + kLogitBlock - 1) / kLogitBlock);
    const double wanted = uniform * scan_.mass(logits_.data(), size(), max_, scale_, threshold_, sums.data());
    double sum = 0.0;
    size_t block = 0, last = 0;
    for (; block < sums.size(); ++block) {
      if (sums[block] > 0.0) last = block;
      if (sum + sums[block] > wanted) break;
      sum += sums[block];
    }
    if (block == sums.size()) block = last, sum = -kInfinity;  // lost to rounding: the last token that has weight
    float terms[kLogitBlock];
    const int64_t begin = static_cast<int64_t>(block) * kLogitBlock, count = std::min(kLogitBlock, size() - begin);
    scan_.terms(logits_.data() + begin, count, max_, scale_, threshold_, terms);
    int32_t chosen = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (terms[i] == 0.0f) continue;
      chosen = static_cast<int32_t>(begin + i);
      sum += static_cast<double>(terms[i]);
      if (sum > wanted) break;
    }
    return chosen;
  }

  const LogitScan scan_;
  const std::span<const float> logits_;
  const float max_, temperature_, scale_;
  Arena& scratch_;
  float threshold_ = std::numeric_limits<float>::lowest();  // removed tokens are below
  static constexpr int32_t kDropped = -1;
  bool complete_ = false;            // candidates_ are all tokens from threshold_ on
  bool is_list_ = false;             // or all that is left
  std::span<Candidate> candidates_;  // ascending ids
  Candidate last_{};
  bool has_last_ = false;
};

// Philox 4x32 with ten rounds (Salmon et al., 2011).
void philox(uint32_t (&counter)[4], uint32_t (&key)[2]) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, counter);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

}  // namespace

Result<int32_t> argmax_token(CpuLevel level, std::span<const float> logits) {
  CHORAL_TRY(const RowExtreme e, checked_extreme(logit_scan(level), logits));
  return e.index;
}

Result<int32_t> sample_token(CpuLevel level, std::span<const float> logits, const SamplingSettings& settings, double uniform,
                             Arena& scratch) {
  CHORAL_TRY(const RowExtreme e, checked_extreme(logit_scan(level), logits));
  if (settings.temperature < kGreedyTemperature) return e.index;
  if (!std::isfinite(settings.temperature)) {
    return invalid_argument("sampling: temperature {} is not a finite number", settings.temperature);
  }
  const Arena::Mark mark(scratch);
  Selection selection(level, logits, e.max, settings.temperature, scratch);
  selection.top_n_sigma(settings.top_n_sigma);
  selection.min_p(settings.min_p);
  selection.top_k(settings.top_k);
  selection.typical_p(settings.typical_p);
  selection.top_p(settings.top_p);
  selection.xtc(settings.xtc_threshold);
  return selection.draw(uniform);
}

double random_uniform(uint64_t seed, uint64_t position, uint32_t stream) {
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  philox(counter, key);
  const uint64_t bits = (uint64_t{counter[0]} << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

double log_sum_exp(CpuLevel level, std::span<const float> logits) {
  const LogitScan scan = logit_scan(level);
  const auto count = std::ssize(logits);
  const RowExtreme e = scan.extreme(logits.data(), count);
  if (e.nan) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(e.max) || logits.empty()) return logits.empty() ? -kInfinity : e.max;
  return static_cast<double>(e.max) + std::log(scan.mass(logits.data(), count, e.max, 1.0f, -kInfinity, nullptr));
}

int64_t top_logprobs(CpuLevel level, std::span<const float> logits, double log_sum_exp, std::span<TokenLogprob> out) {
  if (out.empty()) return 0;
  const LogitScan scan = logit_scan(level);
  const auto count = std::ssize(logits);
  // A heap with the least likely on top; `logprob` holds the logit until the end.
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  size_t filled = 0;
  for (int64_t i = 0;; ++i) {
    const bool full = filled == out.size();
    i = scan.next_above(logits.data(), i, count,
                        full ? out.front().logprob : -kInfinity);  // an equal logit has a higher id: it loses
    if (i == count) break;
    if (full) {
      std::pop_heap(out.begin(), out.end(), better);
      --filled;
    }
    out[filled++] = {static_cast<int32_t>(i), logits[i]};
    std::push_heap(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(filled), better);
  }
  const auto found = out.first(filled);
  std::sort_heap(found.begin(), found.end(), better);
  for (TokenLogprob& t : found) t.logprob = static_cast<float>(static_cast<double>(t.logprob) - log_sum_exp);
  return static_cast<int64_t>(filled);
}

}  // namespace choral::kernels
