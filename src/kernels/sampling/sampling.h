// From one row of logits to one token, in vLLM's order: allowed/banned ids → bias → penalties → (greedy ends here) → temperature
// → top_n_sigma → min_p → top_k → typical_p → top_p → XTC → draw. typical_p and XTC see probabilities before temperature, as in
// llama.cpp. The caller applies the steps it needs; each is a pure function of one row, so a row's token
// depends on its logits, settings, seed and position only (invariant 1). No heap: scratch comes from an Arena, given back on
// return. Any thread may run any row with its own Arena. Token ids outside [0, vocab) name no logit and are passed over.
#pragma once

#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/cpu_level.h"
#include "base/status.h"

namespace choral::kernels {

// ---- Changing logits, in place. A removed token has logit −inf.

struct TokenBias {
  int32_t token;
  float bias;
};
void add_logit_bias(std::span<float> logits, std::span<const TokenBias> biases);
void ban_tokens(std::span<float> logits, std::span<const int32_t> banned);
void allow_only_tokens(std::span<float> logits, std::span<const int32_t> allowed, Arena& scratch);
// Bit t of mask (word t/32, bit t%32) set = token t allowed: a grammar's mask. Tokens beyond the mask's words are removed.
void apply_token_mask(std::span<float> logits, std::span<const uint32_t> mask);

struct Penalties {
  float repetition = 1.0f;  // > 0; logits of tokens in prompt or output: l > 0 ? l / r : l · r
  float frequency = 0.0f;   // − frequency · count in output
  float presence = 0.0f;    // − presence if in output
};
void apply_penalties(std::span<float> logits, std::span<const int32_t> prompt, std::span<const int32_t> output,
                     const Penalties& penalties, Arena& scratch);

// ---- Choosing.

struct SamplingSettings {
  float temperature = 1.0f;  // below kGreedyTemperature: greedy
  int32_t top_k = 0;         // <= 0 or >= vocab: all. Tokens equal to the k-th largest logit stay (as vLLM and HF).
  float top_p =
      1.0f;  // the smallest set of most likely tokens whose probability reaches top_p; at least one. Ties: lower id first.
  float min_p = 0.0f;        // keeps tokens with p >= min_p · max p
  float top_n_sigma = 0.0f;  // keeps logits >= max − n · σ, σ over logits that are not removed; <= 0: all
  // Keeps the tokens whose surprise −log p is nearest to its mean, the entropy, until their probability exceeds typical_p; ties:
  // lower id first. >= 1: all.
  float typical_p = 1.0f;
  // XTC, once its dice were thrown: of the tokens with p >= xtc_threshold, where there are several, only the least likely stays.
  // > 0.5: off.
  float xtc_threshold = 1.0f;
};
inline constexpr float kGreedyTemperature = 1e-5f;

// The token of the largest logit, ties to the lowest id. Errors: a NaN or +inf in the row (kInternal: the model broke down), or
// every token removed (kInvalidArgument). sample_token() the same.
Result<int32_t> argmax_token(CpuLevel level, std::span<const float> logits);

// Draws by inverse CDF over token ids in ascending order; uniform in [0, 1), see random_uniform().
Result<int32_t> sample_token(CpuLevel level, std::span<const float> logits, const SamplingSettings& settings, double uniform,
                             Arena& scratch);

// Counter-based (Philox 4x32-10): a pure function of its arguments, 53 bits in [0, 1). `stream` separates uses at one position.
double random_uniform(uint64_t seed, uint64_t position, uint32_t stream = 0);

// ---- Log-probabilities: logprob(t) = logits[t] − log_sum_exp(logits).

struct TokenLogprob {
  int32_t token;
  float logprob;
};
// log Σ e^logit, summed in double; NaN if the row holds one, −inf if every token is removed.
double log_sum_exp(CpuLevel level, std::span<const float> logits);
// Fills `out` with the out.size() most likely tokens, most likely first, ties to the lower id; returns how many there were (vocab
// may be smaller). NaN logits are passed over.
int64_t top_logprobs(CpuLevel level, std::span<const float> logits, double log_sum_exp, std::span<TokenLogprob> out);

}  // namespace choral::kernels
