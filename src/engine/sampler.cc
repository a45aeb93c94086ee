#include "engine/sampler.h"

#include <algorithm>
#include <limits>

namespace choral::engine {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
// A copy of the row, marks, and candidates with their ids. What typical_p, XTC and DRY need beside it comes with their first
// rows.
constexpr size_t kScratchBytesPerToken = 32;
constexpr uint32_t kXtcDice = 1;  // of random_uniform()'s streams

// Of the row's next token: whether XTC acts is thrown for each.
kernels::SamplingSettings settings_of(const SamplingRule& rule, uint64_t position) {
  kernels::SamplingSettings settings = rule.settings;
  const bool acts = rule.xtc_probability > 0 &&
                    kernels::random_uniform(rule.seed, position, kXtcDice) < static_cast<double>(rule.xtc_probability);
  if (!acts) settings.xtc_threshold = kernels::SamplingSettings{}.xtc_threshold;
  return settings;
}

// From 1; equal ones in the order of their ids, as top_logprobs() has them.
int32_t rank_of(std::span<const float> logits, int32_t token) {
  const float own = logits[static_cast<size_t>(token)];
  const auto before = logits.first(static_cast<size_t>(token)), behind = logits.subspan(static_cast<size_t>(token) + 1);
  return static_cast<int32_t>(1 + std::count_if(before.begin(), before.end(), [own](float logit) { return logit >= own; }) +
                              std::count_if(behind.begin(), behind.end(), [own](float logit) { return logit > own; }));
}

}  // namespace

bool completes(std::span<const int32_t> history, std::span<const int32_t> word) {
  const size_t head = word.size() - 1;
  return history.size() >= head && std::equal(word.begin(), word.end() - 1, history.end() - static_cast<ptrdiff_t>(head));
}

bool has_penalties(const SamplingRule& rule) {
  const auto& p = rule.penalties;
  return rule.penalty_last_n != 0 && (p.repetition != 1.0f || p.frequency != 0.0f || p.presence != 0.0f);
}

Sampler::Sampler(const platform::Context& ctx, int64_t vocab) : ctx_(ctx) {
  // Any thread may meet its first row late, so that growing on demand would allocate in the middle of a steady state.
  for (int i = 0; i < ctx.kernel.pool.size(); ++i) {
    scratch_.push_back(std::make_unique<Arena>());
    scratch_.back()->allocate(static_cast<size_t>(vocab) * kScratchBytesPerToken);
    scratch_.back()->reset();
  }
}

void Sampler::sample(MatrixView<float> logits, std::span<const SampledRow> rows) {
  ctx_.kernel.pool.parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      Arena& scratch = *scratch_[thread];
      const Arena::Mark mark(scratch);
      const SampledRow& row = rows[i];
      sample_row(logits.row_span(i).first(row.vocab), row, scratch);
    }
  });
}

void Sampler::sample_row(std::span<float> logits, const SampledRow& row, Arena& scratch) const {
  const SamplingRule& rule = *row.rule;
  const CpuLevel level = ctx_.kernel.level;
  SampledToken& out = *row.out;
  out.status = {};
  double raw_sum = 0;
  std::span<float> raw;  // log-probabilities are those of the model, before anything below
  if (rule.logprobs) {
    raw = scratch.make<float>(logits.size());
    std::copy(logits.begin(), logits.end(), raw.begin());
    raw_sum = kernels::log_sum_exp(level, raw);
  }

  const auto output = row.output();
  if (!rule.allowed_ids.empty()) kernels::allow_only_tokens(logits, rule.allowed_ids, scratch);
  if (!rule.bias.empty()) kernels::add_logit_bias(logits, rule.bias);
  if (std::ssize(output) < rule.min_tokens) kernels::ban_tokens(logits, rule.stop_ids);
  for (const auto& word : rule.bad_words) {
    if (completes(row.tokens, word)) kernels::ban_tokens(logits, std::span(word).last(1));
  }
  if (has_penalties(rule)) {
    const auto seen = row.penalized(), given = row.penalized_output();
    kernels::apply_penalties(logits, seen.first(seen.size() - given.size()), given, rule.penalties, scratch);
  }
  for (const auto& [id, penalty] : kernels::dry_penalties(row.tokens, rule.dry, rule.dry_breakers, scratch)) {
    if (static_cast<size_t>(id) < logits.size()) logits[id] -= penalty;
  }
  if (!row.mask.empty()) kernels::apply_token_mask(logits, row.mask);
  auto token = rule.settings.temperature < kernels::kGreedyTemperature
                   ? kernels::argmax_token(level, logits)
                   : kernels::sample_token(level, logits, settings_of(rule, output.size()),
                                           kernels::random_uniform(rule.seed, output.size()), scratch);
  if (!token.ok()) {
    out.token = -1;
    out.status = std::move(token).status();
    return;
  }
  out.token = *token;
  if (!rule.logprobs) return;
  out.logprob = static_cast<float>(static_cast<double>(raw[out.token]) - raw_sum);
  if (rule.logprob_ids.empty()) {
    out.top_count = static_cast<int32_t>(kernels::top_logprobs(level, raw, raw_sum, row.top));
    return;
  }
  for (size_t i = 0; i < rule.logprob_ids.size(); ++i) {
    const int32_t id = rule.logprob_ids[i];
    const bool is_there = static_cast<size_t>(id) < raw.size();  // not another adapter's own
    row.top[i] = {id, is_there ? static_cast<float>(static_cast<double>(raw[id]) - raw_sum) : kImpossible};
  }
  out.top_count = static_cast<int32_t>(rule.logprob_ids.size());
}

PositionLogprobs Sampler::logprobs_of(std::span<const float> logits, int32_t token, int top) const {
  const CpuLevel level = ctx_.kernel.level;
  const double sum = kernels::log_sum_exp(level, logits);
  std::vector<kernels::TokenLogprob> best(std::max(top, 0));
  best.resize(kernels::top_logprobs(level, logits, sum, best));
  PositionLogprobs out;
  out.chosen = {token, static_cast<float>(static_cast<double>(logits[token]) - sum)};
  out.top.reserve(best.size());
  for (const auto& entry : best) out.top.push_back({entry.token, entry.logprob});
  out.rank = rank_of(logits, token);
  return out;
}

}  // namespace choral::engine
