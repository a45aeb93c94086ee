#include "engine/sampler.h"

#include <algorithm>

namespace choral::engine {
namespace {

constexpr size_t kScratchBytesPerToken = 32;  // a copy of the row, marks, and candidates with their ids

// The last tokens of prompt + output equal all but the last token of `word`: then that last one is banned.
bool completes(std::span<const int32_t> history, std::span<const int32_t> word) {
  const size_t head = word.size() - 1;
  return history.size() >= head && std::equal(word.begin(), word.end() - 1, history.end() - static_cast<ptrdiff_t>(head));
}

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

}  // namespace

Sampler::Sampler(const platform::Context& ctx, int64_t vocab) : ctx_(ctx) {
  // Any thread may meet its first row late, so that growing on demand would allocate in the middle of a steady state.
  for (int i = 0; i < ctx.kernel.pool.size(); ++i) {
    scratch_.push_back(std::make_unique<Arena>());
    scratch_.back()->allocate(static_cast<size_t>(vocab) * kScratchBytesPerToken);
    scratch_.back()->reset();
  }
}

void Sampler::sample(MatrixView<float> logits, std::span<EngineRequest* const> requests, std::span<SampledToken* const> out) {
  ctx_.kernel.pool.parallel_for(logits.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      Arena& scratch = *scratch_[static_cast<size_t>(thread)];
      const Arena::Mark mark(scratch);
      sample_row(logits.row_span(i), *requests[static_cast<size_t>(i)], *out[static_cast<size_t>(i)], scratch);
    }
  });
}

void Sampler::sample_row(std::span<float> logits, const EngineRequest& request, SampledToken& out, Arena& scratch) const {
  const SamplingParams& p = request.params;
  const CpuLevel level = ctx_.kernel.level;
  out.status = {};
  out.top.clear();
  double raw_sum = 0;
  std::span<float> raw;  // log-probabilities are those of the model, before anything below
  if (p.logprobs) {
    raw = scratch.make<float>(logits.size());
    std::copy(logits.begin(), logits.end(), raw.begin());
    raw_sum = kernels::log_sum_exp(level, raw);
  }

  if (!p.allowed_token_ids.empty()) kernels::allow_only_tokens(logits, p.allowed_token_ids, scratch);
  if (!request.bias.empty()) kernels::add_logit_bias(logits, request.bias);
  if (request.output_count() < p.min_tokens) kernels::ban_tokens(logits, request.stop_ids);
  for (const auto& word : request.bad_words) {
    if (completes(request.tokens, word)) kernels::ban_tokens(logits, std::span(word).last(1));
  }
  if (has_penalties(p)) {
    kernels::apply_penalties(logits, request.prompt(), request.output(),
                             {p.repetition_penalty, p.frequency_penalty, p.presence_penalty}, scratch);
  }
  const auto position = static_cast<uint64_t>(request.output_count());
  auto token = p.temperature < kernels::kGreedyTemperature
                   ? kernels::argmax_token(level, logits)
                   : kernels::sample_token(level, logits, {p.temperature, p.top_k, p.top_p, p.min_p},
                                           kernels::random_uniform(request.seed, position), scratch);
  if (!token.ok()) {
    out.token = -1;
    out.status = std::move(token).status();
    return;
  }
  out.token = *token;
  if (!p.logprobs) return;
  out.logprob = static_cast<float>(static_cast<double>(raw[static_cast<size_t>(out.token)]) - raw_sum);
  out.top.resize(static_cast<size_t>(std::max(*p.logprobs, 0)));
  out.top.resize(static_cast<size_t>(kernels::top_logprobs(level, raw, raw_sum, out.top)));
}

PositionLogprobs Sampler::logprobs_of(std::span<const float> logits, int32_t token, int top) const {
  const CpuLevel level = ctx_.kernel.level;
  const double sum = kernels::log_sum_exp(level, logits);
  std::vector<kernels::TokenLogprob> best(static_cast<size_t>(std::max(top, 0)));
  best.resize(static_cast<size_t>(kernels::top_logprobs(level, logits, sum, best)));
  PositionLogprobs out;
  out.chosen = {token, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - sum)};
  out.top.reserve(best.size());
  for (const auto& entry : best) out.top.push_back({entry.token, entry.logprob});
  return out;
}

}  // namespace choral::engine
