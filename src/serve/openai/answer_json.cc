#include "serve/openai/answer_json.h"

#include <algorithm>

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
            {"accepted_prediction_tokens", usage.guesses.predicted_right},
            {"rejected_prediction_tokens", usage.guesses.predicted - usage.guesses.predicted_right}}}};
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
    for (const auto& completion : output.completions) {
      usage.completion_tokens += std::ssize(completion.given_token_ids) + std::ssize(completion.token_ids);
      usage.guesses += completion.guesses;
    }
  }
  return usage;
}

bool begins(const RequestOutput& output) { return output.completions.front().given_token_ids.empty(); }

Progress progress_of(const RequestOutput& output) {
  Progress progress{.prompt_tokens = std::ssize(output.prompt_token_ids),
                    .cached_tokens = output.cached_tokens,
                    .made_tokens = 0,
                    .guesses = {},
                    .prompt_s = std::max(output.metrics.first_token_s - output.metrics.queue_s, 0.0),
                    .answer_s = std::max(output.metrics.total_s - output.metrics.first_token_s, 0.0)};
  for (const auto& completion : output.completions) {
    progress.made_tokens += std::ssize(completion.token_ids);
    progress.guesses += completion.guesses;
  }
  return progress;
}

Progress together(const Progress& a, const Progress& b) {
  GuessCounts guesses = a.guesses;
  guesses += b.guesses;
  return {.prompt_tokens = a.prompt_tokens + b.prompt_tokens,
          .cached_tokens = a.cached_tokens + b.cached_tokens,
          .made_tokens = a.made_tokens + b.made_tokens,
          .guesses = guesses,
          .prompt_s = std::max(a.prompt_s, b.prompt_s),
          .answer_s = std::max(a.answer_s, b.answer_s)};
}

// What took no time that can be measured has no speed: 0.
Json timings_json(const Progress& progress) {
  constexpr double kMs = 1000;
  const auto share = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  const auto computed = static_cast<double>(progress.prompt_tokens - progress.cached_tokens);
  const auto made = static_cast<double>(progress.made_tokens);
  Json json{{"cache_n", progress.cached_tokens},
            {"prompt_n", progress.prompt_tokens - progress.cached_tokens},
            {"prompt_ms", progress.prompt_s * kMs},
            {"prompt_per_token_ms", share(progress.prompt_s * kMs, computed)},
            {"prompt_per_second", share(computed, progress.prompt_s)},
            {"predicted_n", progress.made_tokens},
            {"predicted_ms", progress.answer_s * kMs},
            {"predicted_per_token_ms", share(progress.answer_s * kMs, made)},
            {"predicted_per_second", share(made, progress.answer_s)}};
  if (progress.guesses.guessed > 0) {
    json["draft_n"] = progress.guesses.guessed;
    json["draft_n_accepted"] = progress.guesses.right;
  }
  return json;
}

Json prompt_progress_json(const Progress& progress) {
  constexpr double kMs = 1000;
  return {{"total", progress.prompt_tokens},
          {"cache", progress.cached_tokens},
          {"processed", progress.prompt_tokens},
          {"time_ms", progress.prompt_s * kMs}};
}

Json finish_reason_json(FinishReason reason) {
  if (reason == FinishReason::kNone) return nullptr;
  return finish_reason_name(reason);
}

// vLLM's: the stop string, or the id of the token.
Json stop_reason_json(const std::string& stop_reason, bool by_token) {
  if (stop_reason.empty()) return nullptr;
  return by_token ? Json::parse(stop_reason) : Json(stop_reason);
}

}  // namespace choral::serve
