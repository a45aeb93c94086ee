#include "serve/native/generation_settings.h"

#include <limits>

namespace choral::serve {
namespace {

// As it is written where there is none: -1 in 32 bits.
uint64_t seed_of(const SamplingParams& sampling) { return sampling.seed.value_or(std::numeric_limits<uint32_t>::max()); }

int n_predict_of(const NativeCall& call) {
  if (call.no_tokens) return 0;
  return call.request.sampling.max_tokens == 0 ? -1 : call.request.sampling.max_tokens;
}

// They come back with each of a request's results, of which there may be many.
constexpr size_t kMostBiasesTold = 4096;
constexpr size_t kMostGrammarTold = 64 << 10;  // bytes

Json biases_of(const SamplingParams& sampling) {
  if (sampling.logit_bias.size() > kMostBiasesTold) return nullptr;
  Json biases = Json::array();
  for (const auto& [token, bias] : sampling.logit_bias) biases.push_back({{"bias", bias}, {"token", token}});
  for (const auto& [text, bias] : sampling.logit_bias_texts) biases.push_back({{"bias", bias}, {"text", text}});
  return biases;
}

Json grammar_of(const StructuredOutput& form) {
  if (form.kind != StructuredOutput::Kind::kGrammar) return "";
  return form.text.size() > kMostGrammarTold ? Json(nullptr) : Json(form.text);
}

Json adapters_of(const NativeCall& call, std::span<const int32_t> ids) {
  Json adapters = Json::array();
  for (size_t i = 0; i < call.request.adapters.size(); ++i) {
    const AdapterUse& use = call.request.adapters[i];
    adapters.push_back({{"id", i < ids.size() ? ids[i] : -1}, {"name", use.name}, {"scale", use.scale}});
  }
  return adapters;
}

}  // namespace

Json generation_settings(const NativeCall& call, std::span<const int32_t> adapter_ids) {
  const SamplingParams& s = call.request.sampling;
  const int n_predict = n_predict_of(call);
  return {{"seed", seed_of(s)},
          {"temperature", s.temperature},
          {"dynatemp_range", 0.0},
          {"dynatemp_exponent", 1.0},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"top_n_sigma", s.top_n_sigma},
          {"xtc_probability", s.xtc_probability},
          {"xtc_threshold", s.xtc_threshold},
          {"typical_p", s.typical_p},
          {"repeat_last_n", s.penalty_last_n},
          {"repeat_penalty", s.repetition_penalty},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"dry_multiplier", s.dry_multiplier},
          {"dry_base", s.dry_base},
          {"dry_allowed_length", s.dry_allowed_length},
          {"dry_penalty_last_n", s.dry_penalty_last_n},
          {"dry_sequence_breakers", s.dry_sequence_breakers},
          {"mirostat", 0},
          {"stop", s.stop},
          {"max_tokens", n_predict},
          {"n_predict", n_predict},
          {"n_keep", 0},
          {"n_discard", 0},
          {"ignore_eos", s.ignore_eos},
          {"stream", call.stream},
          {"logit_bias", biases_of(s)},
          {"n_probs", s.logprobs.value_or(0)},
          {"min_keep", 0},
          {"grammar", grammar_of(call.request.structured_output)},
          {"samplers", {"penalties", "dry", "temperature", "top_n_sigma", "min_p", "top_k", "typ_p", "top_p", "xtc"}},
          {"timings_per_token", call.timings},
          {"post_sampling_probs", false},
          {"lora", adapters_of(call, adapter_ids)}};
}

}  // namespace choral::serve
