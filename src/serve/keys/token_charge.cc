#include "serve/keys/token_charge.h"

#include <algorithm>

#include "engine/sampling_check.h"

namespace choral::serve {

int completions_charged(const SamplingParams& sampling) {
  return std::clamp(engine::completions_made(sampling), 1, engine::kMaxCompletions);
}

int64_t most_tokens(const Request& request, int max_model_len) {
  constexpr int64_t kBytesPerToken = 4;
  const auto bytes = static_cast<int64_t>(request.prompt ? request.prompt->size() : request.messages_json.size());
  const int64_t prompt = bytes / kBytesPerToken + std::ssize(request.prompt_token_ids);
  if (request.embedding) return prompt;
  const int64_t answer = request.sampling.max_tokens > 0 ? request.sampling.max_tokens : max_model_len;
  return prompt + completions_charged(request.sampling) * answer;
}

int64_t used_tokens(const RequestOutput& output, int completions) {
  int64_t given = 0, longest = 0;
  for (const auto& completion : output.completions) {
    given += std::ssize(completion.token_ids);
    longest = std::max<int64_t>(longest, std::ssize(completion.token_ids));
  }
  const int64_t kept_back = std::max<int64_t>(completions - std::ssize(output.completions), 0);
  return std::ssize(output.prompt_token_ids) + given + kept_back * longest;
}

}  // namespace choral::serve
