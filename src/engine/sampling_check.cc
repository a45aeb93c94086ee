#include "engine/sampling_check.h"

#include <cmath>

#include "base/status.h"

namespace choral::engine {
namespace {

constexpr int kMaxCompletions = 128;
constexpr int kMaxLogprobs = 100;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBadWords = 128;

Status in_range(std::string_view name, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return invalid_argument("{} is {}; it must lie between {} and {}", name, value, low, high);
}

Status check_id(std::string_view name, int32_t id, int32_t vocab) {
  if (id >= 0 && id < vocab) return {};
  return invalid_argument("{} holds token id {}; the model has ids 0 to {}", name, id, vocab - 1);
}

Status check_texts(std::string_view name, const std::vector<std::string>& texts, size_t most) {
  if (texts.size() > most) return too_large("{} has {} entries; at most {} are allowed", name, texts.size(), most);
  for (const auto& text : texts) {
    if (text.size() > kMaxStopBytes)
      return too_large("an entry of {} has {} bytes; at most {} are allowed", name, text.size(), kMaxStopBytes);
  }
  return {};
}

}  // namespace

Status check_sampling(const SamplingParams& p, int32_t vocab) {
  CHORAL_RETURN_IF_ERROR(in_range("n", p.n, 1, kMaxCompletions));
  CHORAL_RETURN_IF_ERROR(in_range("max_tokens", p.max_tokens, 0, 1 << 30));
  CHORAL_RETURN_IF_ERROR(in_range("min_tokens", p.min_tokens, 0, p.max_tokens == 0 ? 1 << 30 : p.max_tokens));
  CHORAL_RETURN_IF_ERROR(in_range("temperature", p.temperature, 0, 100));
  CHORAL_RETURN_IF_ERROR(in_range("top_k", p.top_k, -1, 1 << 30));
  CHORAL_RETURN_IF_ERROR(in_range("min_p", p.min_p, 0, 1));
  CHORAL_RETURN_IF_ERROR(in_range("presence_penalty", p.presence_penalty, -2, 2));
  CHORAL_RETURN_IF_ERROR(in_range("frequency_penalty", p.frequency_penalty, -2, 2));
  if (!(p.top_p > 0 && p.top_p <= 1)) return invalid_argument("top_p is {}; it must lie in (0, 1]", p.top_p);
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty))) {
    return invalid_argument("repetition_penalty is {}; it must be above 0", p.repetition_penalty);
  }
  CHORAL_RETURN_IF_ERROR(in_range("logprobs", p.logprobs.value_or(0), 0, kMaxLogprobs));
  CHORAL_RETURN_IF_ERROR(in_range("prompt_logprobs", p.prompt_logprobs.value_or(0), 0, kMaxLogprobs));
  CHORAL_RETURN_IF_ERROR(check_texts("stop", p.stop, kMaxStops));
  CHORAL_RETURN_IF_ERROR(check_texts("bad_words", p.bad_words, kMaxBadWords));
  for (const int32_t id : p.stop_token_ids) CHORAL_RETURN_IF_ERROR(check_id("stop_token_ids", id, vocab));
  for (const int32_t id : p.allowed_token_ids) CHORAL_RETURN_IF_ERROR(check_id("allowed_token_ids", id, vocab));
  for (const auto& [id, bias] : p.logit_bias) {
    CHORAL_RETURN_IF_ERROR(check_id("logit_bias", id, vocab));
    CHORAL_RETURN_IF_ERROR(in_range("logit_bias", bias, -100, 100));
  }
  return {};
}

}  // namespace choral::engine
