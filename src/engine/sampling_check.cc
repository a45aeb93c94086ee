#include "engine/sampling_check.h"

#include <limits>
#include <type_traits>

#include "base/status.h"
#include "engine/sampling_rule.h"

namespace choral::engine {
namespace {

constexpr int kMaxLogprobs = 100;
constexpr size_t kMaxStopIds = 1024;  // looked through at each token
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBadWords = 128;
constexpr size_t kMaxLogprobIds = 128;  // vLLM's
constexpr size_t kMaxBiasTexts = 1024;
constexpr size_t kMaxBreakers = 32;      // a vocabulary is looked through for each
constexpr size_t kMaxBreakerBytes = 40;  // llama.cpp's
constexpr float kMostDryMultiplier = 100;
constexpr float kMostDryBase = 100;

template <class T>
Status in_range(std::string_view name, T value, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return invalid_argument("{} is {}; it must lie between {} and {}", name, value, low, high);
}

Status check_id(std::string_view name, int32_t id, int32_t vocab) {
  if (id >= 0 && id < vocab) return {};
  return invalid_argument("{} holds token id {}; the model has ids 0 to {}", name, id, vocab - 1);
}

Status check_count(std::string_view name, size_t count, size_t most) {
  if (count <= most) return {};
  return too_large("{} has {} entries; at most {} are allowed", name, count, most);
}

Status check_texts(std::string_view name, const std::vector<std::string>& texts, size_t most, size_t most_bytes = kMaxStopBytes) {
  CHORAL_RETURN_IF_ERROR(check_count(name, texts.size(), most));
  for (const auto& text : texts) {
    if (text.size() > most_bytes)
      return too_large("an entry of {} has {} bytes; at most {} are allowed", name, text.size(), most_bytes);
  }
  return {};
}

// −inf: never.
Status check_bias(float bias) {
  return bias == -std::numeric_limits<float>::infinity() ? Status() : in_range("logit_bias", bias, -100, 100);
}

Status check_dry(const SamplingParams& p) {
  CHORAL_RETURN_IF_ERROR(in_range("dry_multiplier", p.dry_multiplier, 0, kMostDryMultiplier));
  CHORAL_RETURN_IF_ERROR(in_range("dry_base", p.dry_base, 1, kMostDryBase));
  CHORAL_RETURN_IF_ERROR(in_range("dry_allowed_length", p.dry_allowed_length, 0, 1 << 30));
  CHORAL_RETURN_IF_ERROR(in_range("dry_penalty_last_n", p.dry_penalty_last_n, -1, 1 << 30));
  return check_texts("dry_sequence_breakers", p.dry_sequence_breakers, kMaxBreakers, kMaxBreakerBytes);
}

}  // namespace

Status check_completions(const SamplingParams& p) {
  CHORAL_RETURN_IF_ERROR(in_range("n", p.n, 1, kMaxCompletions));
  CHORAL_RETURN_IF_ERROR(in_range("best_of", p.best_of, 0, kMaxCompletions));
  if (p.best_of > 0 && p.best_of < p.n) {
    return invalid_argument("best_of is {} and n is {}; best_of must be at least n, or 0 for n", p.best_of, p.n);
  }
  return {};
}

Status check_sampling(const SamplingParams& p, int32_t vocab) {
  CHORAL_RETURN_IF_ERROR(check_completions(p));
  CHORAL_RETURN_IF_ERROR(in_range("max_tokens", p.max_tokens, 0, 1 << 30));
  CHORAL_RETURN_IF_ERROR(in_range("min_tokens", p.min_tokens, 0, p.max_tokens == 0 ? 1 << 30 : p.max_tokens));
  CHORAL_RETURN_IF_ERROR(in_range("temperature", p.temperature, 0, kMostTemperature));
  CHORAL_RETURN_IF_ERROR(in_range("top_k", p.top_k, -1, 1 << 30));
  CHORAL_RETURN_IF_ERROR(in_range("min_p", p.min_p, 0, 1));
  CHORAL_RETURN_IF_ERROR(in_range("typical_p", p.typical_p, 0, 1));
  CHORAL_RETURN_IF_ERROR(in_range("top_n_sigma", p.top_n_sigma, -1, 1000));
  CHORAL_RETURN_IF_ERROR(in_range("xtc_probability", p.xtc_probability, 0, 1));
  CHORAL_RETURN_IF_ERROR(in_range("xtc_threshold", p.xtc_threshold, 0, 1));
  CHORAL_RETURN_IF_ERROR(in_range("repeat_last_n", p.penalty_last_n, -1, 1 << 30));
  CHORAL_RETURN_IF_ERROR(check_dry(p));
  CHORAL_RETURN_IF_ERROR(in_range("presence_penalty", p.presence_penalty, -2, 2));
  CHORAL_RETURN_IF_ERROR(in_range("frequency_penalty", p.frequency_penalty, -2, 2));
  CHORAL_RETURN_IF_ERROR(in_range("top_p", p.top_p, 0, 1));
  CHORAL_RETURN_IF_ERROR(in_range("repetition_penalty", p.repetition_penalty, kLeastRepetitionPenalty, kMostRepetitionPenalty));
  CHORAL_RETURN_IF_ERROR(in_range("logprobs", p.logprobs.value_or(0), 0, kMaxLogprobs));
  CHORAL_RETURN_IF_ERROR(in_range("prompt_logprobs", p.prompt_logprobs.value_or(0), 0, kMaxLogprobs));
  CHORAL_RETURN_IF_ERROR(check_texts("stop", p.stop, kMaxStops));
  CHORAL_RETURN_IF_ERROR(check_texts("bad_words", p.bad_words, kMaxBadWords));
  const auto all_ids = static_cast<size_t>(vocab);
  CHORAL_RETURN_IF_ERROR(check_count("stop_token_ids", p.stop_token_ids.size(), kMaxStopIds));
  CHORAL_RETURN_IF_ERROR(check_count("allowed_token_ids", p.allowed_token_ids.size(), all_ids));
  CHORAL_RETURN_IF_ERROR(check_count("logit_bias", p.logit_bias.size(), all_ids));
  CHORAL_RETURN_IF_ERROR(check_count("logprob_token_ids", p.logprob_token_ids.size(), kMaxLogprobIds));
  if (!p.logprob_token_ids.empty() && !p.logprobs)
    return invalid_argument("logprob_token_ids says which log probabilities are given, and logprobs that some are; give both");
  for (const int32_t id : p.logprob_token_ids) CHORAL_RETURN_IF_ERROR(check_id("logprob_token_ids", id, vocab));
  for (const int32_t id : p.stop_token_ids) CHORAL_RETURN_IF_ERROR(check_id("stop_token_ids", id, vocab));
  for (const int32_t id : p.allowed_token_ids) CHORAL_RETURN_IF_ERROR(check_id("allowed_token_ids", id, vocab));
  for (const auto& [id, bias] : p.logit_bias) {
    CHORAL_RETURN_IF_ERROR(check_id("logit_bias", id, vocab));
    CHORAL_RETURN_IF_ERROR(check_bias(bias));
  }
  CHORAL_RETURN_IF_ERROR(check_count("logit_bias", p.logit_bias_texts.size(), kMaxBiasTexts));
  for (const auto& [text, bias] : p.logit_bias_texts) {
    CHORAL_RETURN_IF_ERROR(check_texts("logit_bias", {text}, 1));
    CHORAL_RETURN_IF_ERROR(check_bias(bias));
  }
  return {};
}

namespace {

int64_t of_answers(const SamplingParams& p, int64_t max_tokens) {
  return p.logprobs ? completions_made(p) * max_tokens * (static_cast<int64_t>(logprobs_beside(p)) + 1) : 0;
}

int64_t of_prompt(const SamplingParams& p, int64_t prompt_tokens) {
  return p.prompt_logprobs ? prompt_tokens * (*p.prompt_logprobs + 1) : 0;
}

}  // namespace

int64_t logprobs_given(const SamplingParams& p, int64_t max_tokens, int64_t prompt_tokens) {
  return of_answers(p, max_tokens) + p.n * of_prompt(p, prompt_tokens);
}

Status check_logprobs(const SamplingParams& p, int64_t max_tokens, int64_t prompt_tokens) {
  const int made = completions_made(p);
  if (const int64_t asked = of_answers(p, max_tokens); asked > kMostLogprobs) {
    return too_large(
        "{} {} with max_tokens {} and {} {} asks for up to {} log probabilities, the chosen tokens' included; "
        "at most {} are given in one answer: lower one of the three",
        made > p.n ? "best_of" : "n", made, max_tokens, p.logprob_token_ids.empty() ? "logprobs" : "logprob_token_ids",
        logprobs_beside(p), asked, kMostLogprobs);
  }
  if (const int64_t asked = of_prompt(p, prompt_tokens); asked > kMostLogprobs) {
    return too_large(
        "prompt_logprobs {} over a prompt of {} tokens asks for {} log probabilities, the prompt's own included; at most {} "
        "are "
        "given in one answer: lower prompt_logprobs or shorten the prompt",
        *p.prompt_logprobs, prompt_tokens, asked, kMostLogprobs);
  }
  return {};
}

Status check_adapter_scale(const AdapterUse& use) {
  if (use.scale >= -kMostAdapterScale && use.scale <= kMostAdapterScale) return {};  // false for NaN
  return invalid_argument("adapter '{}': its scale is {}; it must lie between {} and {}", use.name, use.scale, -kMostAdapterScale,
                          kMostAdapterScale);
}

Status check_timeouts(const Request& request) {
  CHORAL_RETURN_IF_ERROR(in_range("timeout_s", request.timeout_s, 0, kMostTimeoutS));
  return in_range("queue_timeout_s", request.queue_timeout_s, 0, kMostTimeoutS);
}

Status check_most_guessed(int most_guessed) {
  if (most_guessed >= -1) return {};
  return invalid_argument("most_guessed is {}; give a number of tokens, 0 for none or -1 for as many as the engine guesses",
                          most_guessed);
}

}  // namespace choral::engine
