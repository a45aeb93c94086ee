// Log-probabilities in OpenAI's two shapes and vLLM's third. For .cc files only (serve/openai/json.h). Pure.
#pragma once

#include <span>
#include <string_view>

#include "choral/types.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/json.h"

namespace choral::serve {

// How tokens are named in log-probabilities.
struct TokenNames {
  TokenText text;
  bool as_ids = false;  // "token_id:7"

  std::string name(int32_t id) const { return as_ids ? fmt::format("token_id:{}", id) : text(id); }
};

// A chat's: {"content": [{"token", "logprob", "bytes", "top_logprobs": […]}, …]}.
Json chat_logprobs(std::span<const PositionLogprobs> positions, size_t top, const TokenNames& names);

// A completion's four lists. `offset`: of the next token in the text, in characters; moves on.
class CompletionLogprobs {
 public:
  // The first prompt token, of which nothing can be said.
  void add_first(int32_t token, const TokenNames& names, int64_t& offset);
  void add(const PositionLogprobs& position, size_t top, const TokenNames& names, int64_t& offset);
  Json json() && { return std::move(json_); }

 private:
  void add_token(int32_t token, const TokenNames& names, int64_t& offset);

  Json json_{{"text_offset", Json::array()},
             {"token_logprobs", Json::array()},
             {"tokens", Json::array()},
             {"top_logprobs", Json::array()}};
};

// vLLM's prompt_logprobs: null for the first token, then {"id": {"logprob", "rank", "decoded_token"}, …} for each.
Json prompt_logprobs_json(std::span<const PositionLogprobs> positions, const TokenNames& names);

}  // namespace choral::serve
