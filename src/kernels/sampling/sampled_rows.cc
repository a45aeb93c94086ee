#include "kernels/sampling/sampled_rows.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/sampling/sampling_scan.h"

namespace choral::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int32_t place_top(CpuLevel level, std::span<const float> logits, double log_sum, const RowSampling& row,
                  const SampledRows& sampled) {
  const auto top = sampled.top.subspan(row.top_begin, row.top_count);
  if (row.named_begin < 0) return static_cast<int32_t>(top_logprobs(level, logits, log_sum, top));
  for (int32_t i = 0; i < row.top_count; ++i) {
    const int32_t token = sampled.named[row.named_begin + i];
    top[i] = {token, named_logprob(logits, log_sum, token)};
  }
  return row.top_count;
}

RowChoice sample_row(CpuLevel level, std::span<float> logits, const RowSampling& row, const SampledRows& sampled,
                     Arena& scratch) {
  RowChoice choice;
  std::span<float> raw;
  double log_sum = 0;
  if (row.wants_logprob != 0) {
    raw = scratch.make<float>(logits.size());
    std::copy(logits.begin(), logits.end(), raw.begin());
    log_sum = log_sum_exp(level, raw);
    choice.top_count = place_top(level, raw, log_sum, row, sampled);
  }
  edit_row(logits, row, sampled);
  choice.outcome = outcome_of(logit_scan(level).extreme(logits.data(), std::ssize(logits)));
  if (choice.outcome != RowOutcome::kToken) return choice;
  const SamplingSettings settings{row.temperature, row.top_k, row.top_p, row.min_p};
  const auto token = sample_token(level, logits, settings, row.uniform, scratch);
  CHORAL_CHECK(token.ok(), token.status().message());  // settings were checked when the request came
  choice.token = *token;
  if (row.wants_logprob != 0) choice.logprob = named_logprob(raw, log_sum, choice.token);
  return choice;
}

}  // namespace

RowOutcome outcome_of(const RowExtreme& extreme) {
  if (extreme.nan) return RowOutcome::kNaN;
  if (extreme.max == kInfinity) return RowOutcome::kInfinity;
  return extreme.max == -kInfinity ? RowOutcome::kNothingLeft : RowOutcome::kToken;
}

Status status_of(RowOutcome outcome) {
  switch (outcome) {
    case RowOutcome::kToken: return {};
    case RowOutcome::kNaN:
      return internal_error(
          "sampling: the model's logits hold a NaN; its weights, adapter or input are damaged, or its keys are larger than a KV "
          "cache of float16 holds (--kv-cache-dtype float32)");
    case RowOutcome::kInfinity:
      return internal_error("sampling: the model's logits hold +inf; its weights, adapter or input are damaged");
    case RowOutcome::kNothingLeft:
      return invalid_argument(
          "sampling: no token is left to choose; allowed tokens, bans, bias, grammar and the end of thoughts exclude each other");
  }
  return internal_error("sampling: the device gives outcome {}, which is none", static_cast<int32_t>(outcome));
}

float edited(float logit, const LogitEdit& edit) {
  if (edit.bias == -kInfinity) return -kInfinity;
  logit += edit.bias;
  logit = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
  logit -= edit.frequency;
  return logit - edit.presence;
}

void edit_row(std::span<float> logits, const RowSampling& row, const SampledRows& sampled) {
  for (const LogitEdit& edit : sampled.edits.subspan(row.edit_begin, row.edit_count)) {
    logits[edit.token] = edited(logits[edit.token], edit);
  }
  if (row.mask_words > 0) apply_token_mask(logits, sampled.mask_words.subspan(row.mask_begin, row.mask_words));
}

float named_logprob(std::span<const float> logits, double log_sum_exp, int32_t token) {
  const bool is_there = static_cast<size_t>(token) < logits.size();
  return is_there ? static_cast<float>(static_cast<double>(logits[token]) - log_sum_exp) : -kInfinity;
}

void sample_rows(CpuLevel level, MatrixView<float> logits, const SampledRows& sampled, Arena& scratch) {
  for (int64_t i = 0; i < logits.rows; ++i) {
    const Arena::Mark mark(scratch);
    const RowSampling& row = sampled.rows[i];
    sampled.choices[i] = sample_row(level, logits.row_span(i).first(row.vocab), row, sampled, scratch);
  }
}

}  // namespace choral::kernels
