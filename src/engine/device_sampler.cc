#include "engine/device_sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/checked_math.h"
#include "platform/host_view.h"

namespace choral::engine {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();
constexpr int32_t kNone = -1;
constexpr int64_t kMaskBits = 32;
// Edits are placed by powers of two: an output's next token moves nothing that lies behind them, and a device that remembers its
// operators by their arguments sees the same ones again (plugin_cache.cc does so with block tables).
constexpr size_t kFewestEdits = 64;

template <class T>
platform::IndexArray<T> placed(const platform::Context& ctx, const std::vector<T>& values) {
  return platform::place_indices(ctx, std::span<const T>(values));
}

bool names_logit(int32_t token, int64_t vocab) { return token >= 0 && token < vocab; }

}  // namespace

DeviceSampler::DeviceSampler(const platform::Context& ctx, int64_t vocab, int64_t max_rows) : ctx_(ctx) {
  if (!ctx.session.samples()) return;  // and never will
  rows_.reserve(max_rows);
  edit_places_.assign(vocab, kNone);
}

void DeviceSampler::place(std::span<const SampledRow> rows) {
  rows_.clear();
  edits_.clear();
  mask_words_.clear();
  named_.clear();
  top_count_ = 0;
  for (const SampledRow& row : rows) add_row(row);
  if (!edits_.empty()) edits_.resize(std::bit_ceil(std::max(edits_.size(), kFewestEdits)));
  batch_ = {.rows = placed(ctx_, rows_),
            .edits = placed(ctx_, edits_),
            .mask_words = placed(ctx_, mask_words_),
            .named = placed(ctx_, named_),
            .choices = {},
            .top = {}};
  // One after the other, so that one copy brings both.
  const size_t choice_bytes = rows.size() * sizeof(kernels::RowChoice);
  results_ = ctx_.memory.make<std::byte>(choice_bytes + static_cast<size_t>(top_count_) * sizeof(kernels::TokenLogprob));
  batch_.choices = {reinterpret_cast<kernels::RowChoice*>(results_.data()), rows.size()};
  batch_.top = {reinterpret_cast<kernels::TokenLogprob*>(results_.data() + choice_bytes), static_cast<size_t>(top_count_)};
}

void DeviceSampler::add_row(const SampledRow& row) {
  const SamplingRule& rule = *row.rule;
  if (needs_host(rule)) {
    rows_.push_back({.temperature = 0, .vocab = static_cast<int32_t>(row.vocab)});
    return;
  }
  const auto& settings = rule.settings;
  kernels::RowSampling to{.temperature = settings.temperature,
                          .top_p = settings.top_p,
                          .min_p = settings.min_p,
                          .top_k = settings.top_k,
                          .vocab = static_cast<int32_t>(row.vocab)};
  if (settings.temperature >= kernels::kGreedyTemperature) to.uniform = kernels::random_uniform(rule.seed, row.output().size());
  add_mask(row, to);
  add_edits(row, to);
  if (rule.logprobs) {
    to.wants_logprob = 1;
    to.top_begin = top_count_;
    to.top_count = static_cast<int32_t>(row.top.size());
    top_count_ += to.top_count;
    if (!rule.logprob_ids.empty()) to.named_begin = static_cast<int32_t>(named_.size());
    named_.insert(named_.end(), rule.logprob_ids.begin(), rule.logprob_ids.end());
  }
  rows_.push_back(to);
}

// What the rule allows and what the grammar does, together.
void DeviceSampler::add_mask(const SampledRow& row, kernels::RowSampling& to) {
  const auto& allowed = row.rule->allowed_ids;
  const auto begin = mask_words_.size();
  if (allowed.empty()) {
    mask_words_.insert(mask_words_.end(), row.mask.begin(), row.mask.end());
  } else {
    mask_words_.resize(begin + static_cast<size_t>(ceil_div(row.vocab, kMaskBits)));
    const auto words = std::span(mask_words_).subspan(begin);
    for (const int32_t t : allowed) {
      if (names_logit(t, row.vocab)) words[t / kMaskBits] |= 1u << t % kMaskBits;
    }
    for (size_t w = 0; w < words.size() && !row.mask.empty(); ++w) words[w] &= w < row.mask.size() ? row.mask[w] : 0;
  }
  to.mask_begin = static_cast<int32_t>(begin);
  to.mask_words = static_cast<int32_t>(mask_words_.size() - begin);
}

// In the sampler's order. A token that is banned stays so, whatever comes behind; one that bias names twice has both.
void DeviceSampler::add_edits(const SampledRow& row, kernels::RowSampling& to) {
  const SamplingRule& rule = *row.rule;
  const auto begin = edits_.size();
  for (const auto& [token, bias] : rule.bias) {
    if (names_logit(token, row.vocab)) edit_of(token).bias += bias;
  }
  if (std::ssize(row.output()) < rule.min_tokens) ban(rule.stop_ids, row.vocab);
  for (const auto& word : rule.bad_words) {
    if (completes(row.tokens, word)) ban(std::span(word).last(1), row.vocab);
  }
  if (has_penalties(rule)) add_penalties(row, begin);
  add_dry(row);
  for (size_t i = begin; i < edits_.size(); ++i) edit_places_[edits_[i].token] = kNone;
  to.edit_begin = static_cast<int32_t>(begin);
  to.edit_count = static_cast<int32_t>(edits_.size() - begin);
}

void DeviceSampler::add_penalties(const SampledRow& row, size_t begin) {
  const auto& penalties = row.rule->penalties;
  const bool repetition = penalties.repetition != 1.0f;
  for (const int32_t t : repetition ? row.penalized() : row.penalized_output()) {
    if (names_logit(t, row.vocab)) edit_of(t).repetition = penalties.repetition;
  }
  for (const int32_t t : row.penalized_output()) {
    if (names_logit(t, row.vocab)) edit_of(t).frequency += 1.0f;  // how often, for now
  }
  for (auto& edit : std::span(edits_).subspan(begin)) {
    edit.presence = edit.frequency > 0 ? penalties.presence : 0.0f;
    edit.frequency *= penalties.frequency;
  }
}

// Subtracted last, as a presence is.
void DeviceSampler::add_dry(const SampledRow& row) {
  Arena& scratch = ctx_.kernel.scratch;
  const Arena::Mark mark(scratch);
  for (const auto& [token, penalty] : kernels::dry_penalties(row.tokens, row.rule->dry, row.rule->dry_breakers, scratch)) {
    if (names_logit(token, row.vocab)) edit_of(token).presence += penalty;
  }
}

kernels::LogitEdit& DeviceSampler::edit_of(int32_t token) {
  int32_t& place = edit_places_[token];
  if (place == kNone) {
    place = static_cast<int32_t>(edits_.size());
    edits_.push_back({.token = token});
  }
  return edits_[place];
}

void DeviceSampler::ban(std::span<const int32_t> tokens, int64_t vocab) {
  for (const int32_t t : tokens) {
    if (names_logit(t, vocab)) edit_of(t).bias = kRemoved;
  }
}

void DeviceSampler::sample(MatrixView<float> logits, std::span<const SampledRow> rows) {
  ctx_.ops.sample(ctx_, logits, batch_);
  const std::byte* results = platform::to_host(ctx_, std::span<const std::byte>(results_)).data();
  const auto* choices = reinterpret_cast<const kernels::RowChoice*>(results);
  const auto* top = reinterpret_cast<const kernels::TokenLogprob*>(choices + rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const SampledRow& row = rows[i];
    if (needs_host(*row.rule)) continue;
    SampledToken& out = *row.out;
    out.token = choices[i].token;
    out.status = kernels::status_of(choices[i].outcome);
    if (out.status.ok() && !names_logit(out.token, row.vocab)) {
      out.status = internal_error("sampling: the device gives token {} of {}", out.token, row.vocab);
    }
    if (!out.status.ok()) {
      out.token = -1;
    } else if (row.rule->logprobs) {
      out.logprob = choices[i].logprob;
      out.top_count = std::clamp(choices[i].top_count, 0, rows_[i].top_count);
      std::copy_n(top + rows_[i].top_begin, out.top_count, row.top.begin());
    }
  }
}

}  // namespace choral::engine
