#include "serve/keys/token_charge.h"

#include <algorithm>

#include "engine/sampling_check.h"

namespace choral::serve {
namespace {

constexpr int64_t kBytesPerToken = 4;

int64_t own_prompt_tokens(const Request& request) {
  const auto bytes = std::ssize(request.prompt ? *request.prompt : request.messages_json);
  return bytes / kBytesPerToken + std::ssize(request.prompt_token_ids);
}

int64_t prompt_tokens(const Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return std::ssize(*ids);
  return std::ssize(std::get<std::string>(prompt)) / kBytesPerToken;
}

}  // namespace

int64_t answers_made(const SamplingParams& sampling) {
  return std::clamp(engine::completions_made(sampling), 1, engine::kMaxCompletions);
}

int64_t tokens_to_read(const Request& request, std::span<const Prompt> prompts, int64_t most_each) {
  int64_t tokens = std::min(own_prompt_tokens(request), most_each);
  for (const auto& prompt : prompts) tokens += std::min(prompt_tokens(prompt), most_each);
  return tokens;
}

int64_t most_tokens(const Request& request, std::span<const Prompt> prompts, int max_model_len) {
  const int64_t tokens = tokens_to_read(request, prompts, INT64_MAX);
  if (request.embedding) return tokens;
  const int64_t answer = request.sampling.max_tokens > 0 ? std::min(request.sampling.max_tokens, max_model_len) : max_model_len;
  return tokens + std::max<int64_t>(std::ssize(prompts), 1) * answers_made(request.sampling) * answer;
}

int64_t used_tokens(const AnswerFacts& facts) { return facts.begun ? facts.prompt_tokens + facts.made_tokens : 0; }

}  // namespace choral::serve
