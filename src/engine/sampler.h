// Turns the logits of a step's rows into tokens: each row by its own request's rule, rows in parallel. A row's token depends only
// on its logits, its rule, its own history and (seed, position): same seed = same text in any batch.
// Engine thread; allocates nothing: each thread has its scratch from the start. Where the device samples (device_sampler.h), only
// logits that a caller asked for come here.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "choral/types.h"
#include "engine/sampling_rule.h"
#include "engine/step_output.h"
#include "platform/context.h"

namespace choral::engine {

// A row of logits that gives a token.
struct SampledRow {
  const SamplingRule* rule = nullptr;
  int64_t vocab = 0;                    // leading ones of the row's logits that are its own
  std::span<const int32_t> tokens;      // up to the row's own
  int32_t prompt_count = 0;             // leading ones of them that are the prompt
  std::span<const uint32_t> mask = {};  // by bits, which tokens it may be; empty: any
  SampledToken* out = nullptr;
  std::span<kernels::TokenLogprob> top;  // room for as many as the rule wants

  std::span<const int32_t> output() const { return tokens.subspan(prompt_count); }
  // What penalties look at.
  std::span<const int32_t> penalized() const {
    return rule->penalty_last_n < 0 ? tokens : tokens.last(std::min(tokens.size(), static_cast<size_t>(rule->penalty_last_n)));
  }
  std::span<const int32_t> penalized_output() const {
    const auto all = penalized();
    return all.last(std::min(all.size(), output().size()));
  }
};

// The last tokens of prompt + output equal all but the last token of `word`: then that last one is banned.
bool completes(std::span<const int32_t> history, std::span<const int32_t> word);
bool has_penalties(const SamplingRule& rule);

class Sampler {
 public:
  // `vocab`: the most logits that a row has.
  Sampler(const platform::Context& ctx, int64_t vocab);

  // logits row i is that of rows[i]; the logits are changed in place.
  void sample(MatrixView<float> logits, std::span<const SampledRow> rows);
  // Log-probability of `token` in an untouched row, and the most likely ones.
  PositionLogprobs logprobs_of(std::span<const float> logits, int32_t token, int top) const;

 private:
  void sample_row(std::span<float> logits, const SampledRow& row, Arena& scratch) const;

  const platform::Context& ctx_;
  std::vector<std::unique_ptr<Arena>> scratch_;  // one a thread
};

}  // namespace choral::engine
