#include "serve/openai/answer_json.h"

#include <algorithm>
#include <charconv>

namespace choral::serve {

Json head_json(const AnswerHead& head, std::string_view object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created_unix_s},
          {"model", head.model},
          {"system_fingerprint", head.system_fingerprint}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"audio_tokens", 0}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens},
            {"audio_tokens", 0},
            {"accepted_prediction_tokens", 0},
            {"rejected_prediction_tokens", 0}}}};
}

void add_adapters(const std::vector<AnswerAdapter>& adapters, Json& json) {
  for (const auto& adapter : adapters)
    json["adapters"].push_back({{"name", adapter.name}, {"generation", adapter.generation}, {"digest", adapter.digest}});
}

Usage usage_of(const std::vector<RequestOutput>& outputs) {
  Usage usage;
  for (const auto& output : outputs) {
    usage.prompt_tokens += std::ssize(output.prompt_token_ids);
    usage.cached_tokens += output.cached_tokens;
    for (const auto& completion : output.completions) usage.completion_tokens += std::ssize(completion.token_ids);
  }
  return usage;
}

Json finish_reason_json(FinishReason reason) {
  if (reason == FinishReason::kNone) return nullptr;
  return finish_reason_name(reason);
}

// vLLM's: the stop string, or the id of the token.
Json stop_reason_json(const std::string& stop_reason) {
  if (stop_reason.empty()) return nullptr;
  int32_t id = 0;
  const auto [end, error] = std::from_chars(stop_reason.data(), stop_reason.data() + stop_reason.size(), id);
  const bool is_id = error == std::errc() && end == stop_reason.data() + stop_reason.size();
  return is_id ? Json(id) : Json(stop_reason);
}

}  // namespace choral::serve
