// Log-probabilities in OpenAI's two shapes and vLLM's third. For .cc files only (serve/openai/json.h). Pure.
#pragma once

#include <span>
#include <string_view>

#include "choral/types.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {

// How tokens are named in log-probabilities.
struct TokenNames {
  TokenText text;
  bool as_ids = false;  // "token_id:7"

  std::string name(int32_t id) const { return as_ids ? fmt::format("token_id:{}", id) : text(id); }
};

// How many tokens stand beside each in an answer of OpenAI's shapes, and whether they are those that logprob_token_ids names:
// then the one that was drawn is among them, as vLLM has it.
struct Beside {
  size_t count = 0;
  bool are_named = false;
};
Beside tokens_beside(const SamplingParams& sampling);

// [{"token", "logprob", "bytes", "top_logprobs": […]}, …].
Json token_logprobs(std::span<const PositionLogprobs> positions, Beside beside, const TokenNames& names);
// A chat's: {"content": those, "refusal": null}.
Json chat_logprobs(std::span<const PositionLogprobs> positions, Beside beside, const TokenNames& names);

// The same, made as it is written. Like all that is called long here: what it refers to outlives it.
LongJson long_chat_logprobs(std::span<const PositionLogprobs> positions, Beside beside, const TokenNames& names);

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

// In characters, each token by itself.
int64_t text_characters(std::span<const int32_t> tokens, const TokenNames& names);

// What such lists are made of, in their order.
class LogprobRows {
 public:
  void set_offset(int64_t characters) { offset_ = characters; }  // of the first one in the text; else 0
  void add_first(int32_t token) { rows_.push_back({token, nullptr, 0}); }
  void add(std::span<const PositionLogprobs> positions, size_t top) {
    for (const auto& position : positions) rows_.push_back({position.chosen.token_id, &position, top});
  }

 private:
  friend LongJson long_completion_logprobs(LogprobRows rows, const TokenNames& names);
  struct Row {
    int32_t token;
    const PositionLogprobs* position;  // null: nothing can be said of it
    size_t top;
  };
  std::vector<Row> rows_;
  int64_t offset_ = 0;
};
LongJson long_completion_logprobs(LogprobRows rows, const TokenNames& names);

// vLLM's prompt_logprobs: null for the first token, then {"id": {"logprob", "rank", "decoded_token"}, …} for each. `top`: of the
// most likely ones, beside the prompt's own.
Json prompt_logprobs_json(std::span<const PositionLogprobs> positions, int top, const TokenNames& names);
LongJson long_prompt_logprobs(std::span<const PositionLogprobs> positions, int top, const TokenNames& names);

}  // namespace choral::serve
