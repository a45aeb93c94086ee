// Fields of this server, of vLLM and of llama.cpp that mean in the bodies of other APIs what they mean in a chat's: they are
// passed on as they are.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace choral::serve {

inline constexpr std::array<std::string_view, 40> kEngineFields{"seed",
                                                                "stop_token_ids",
                                                                "include_stop_str_in_output",
                                                                "skip_special_tokens",
                                                                "top_k",
                                                                "min_p",
                                                                "presence_penalty",
                                                                "frequency_penalty",
                                                                "repetition_penalty",
                                                                "typical_p",
                                                                "typ_p",
                                                                "top_n_sigma",
                                                                "xtc_probability",
                                                                "xtc_threshold",
                                                                "repeat_penalty",
                                                                "repeat_last_n",
                                                                "dry_multiplier",
                                                                "dry_base",
                                                                "dry_allowed_length",
                                                                "dry_penalty_last_n",
                                                                "dry_sequence_breakers",
                                                                "thinking_budget",
                                                                "logit_bias",
                                                                "allowed_token_ids",
                                                                "bad_words",
                                                                "structured_outputs",
                                                                "lora",
                                                                "documents",
                                                                "chat_template_kwargs",
                                                                "truncate_prompt_tokens",
                                                                "truncation_side",
                                                                "priority",
                                                                "cache_salt",
                                                                "ignore_eos",
                                                                "min_tokens",
                                                                "timeout_s",
                                                                "queue_timeout_s",
                                                                "continue_token_ids",
                                                                "speculative",
                                                                "prediction"};

template <size_t kCount>
bool is_one_of(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace choral::serve
