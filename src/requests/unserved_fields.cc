#include "requests/unserved_fields.h"

#include <algorithm>
#include <array>

namespace choral::requests {
namespace {

using Unserved = UnservedField;

constexpr std::string_view kAdapters = "name the adapter as 'model' or in 'lora'";
constexpr std::string_view kText = "models here read text alone";
constexpr std::string_view kThoughts = "it is a field of chats, whose thoughts are known";
constexpr std::string_view kBeams = "/v1/completions and /v1/chat/completions have it";
constexpr std::string_view kOldTools = "it is OpenAI's old form; send 'tools' and 'tool_choice'";

constexpr std::array kUnserved{
    // llama.cpp's
    Unserved{"mirostat", "[0]"},
    Unserved{"tfs_z", "[1]"},
    Unserved{"dynatemp_range", "[0]"},
    Unserved{"adaptive_target", "[-1]"},
    Unserved{"penalize_nl", "[false]"},
    Unserved{"samplers", "[[]]"},
    Unserved{"min_keep", "[0,1]"},
    Unserved{"n_indent", "[0]"},
    Unserved{"t_max_predict_ms", "[0,-1]", "send 'timeout_s'"},
    Unserved{"return_tokens", "[false]", "send 'return_token_ids'"},
    Unserved{"n_probs", "[0]", "send 'logprobs'"},
    Unserved{"post_sampling_probs", "[false]"},
    Unserved{"grammar_lazy", "[false]"},
    Unserved{"image_data", "[[]]", kText},
    Unserved{"response_fields", "[[]]", "the answer has all its fields"},
    Unserved{"reasoning_format", R"(["auto","deepseek"])", "the server's --reasoning-parser says how thoughts are read"},
    Unserved{"reasoning_budget_message", R"([""])", "thoughts end with their mark"},
    Unserved{"parse_tool_calls", "[true]", "leave out 'tools'"},
    Unserved{"t_max_prompt_ms", "[0,-1]", "send 'queue_timeout_s'"},
    // vLLM's
    Unserved{"prompt_embeds", "[]"},
    Unserved{"chat_template", "[]", "the server's own is used; its --chat-template sets it"},
    Unserved{"logits_processors", "[[]]"},
    Unserved{"repetition_detection", "[]"},
    Unserved{"return_prompt_text", "[false]", "send 'return_token_ids', or 'echo' to /v1/completions"},
    Unserved{"vllm_xargs", "[{}]"},
    Unserved{"kv_transfer_params", "[{}]", "one process computes an answer"},
    Unserved{"mm_processor_kwargs", "[{}]", kText},
    Unserved{"media_io_kwargs", "[{}]", kText},
    Unserved{"thinking_token_budget", "[-1]", kThoughts},
    Unserved{"thinking_budget", "[-1]", kThoughts},
    Unserved{"thinking_budget_tokens", "[-1]", kThoughts},
    Unserved{"reasoning_budget_tokens", "[-1]", kThoughts},
    // OpenAI's
    Unserved{"suffix", R"([""])", "/v1/completions has it"},
    Unserved{"functions", "[[]]", kOldTools},
    Unserved{"function_call", R"(["none"])", kOldTools},
    Unserved{"web_search_options", "[]", "this server looks nothing up"},
    Unserved{"modalities", R"([["text"],[]])", "answers are text"},
    Unserved{"audio", "[]", "answers are text"},
    // where it is no field of the route
    Unserved{"echo", "[false]", "/v1/completions has it"},
    Unserved{"use_beam_search", "[false]", kBeams},
    Unserved{"beam_width", "[]", kBeams},
    // other servers' ways to name an adapter
    Unserved{"adapter", R"([""])", kAdapters},
    Unserved{"adapters", "[[]]", kAdapters},
    Unserved{"adapter_id", R"([""])", kAdapters},
    Unserved{"merged_adapters", "[]", kAdapters},
    Unserved{"lora_path", R"([""])", kAdapters},
    Unserved{"lora_request", "[]", kAdapters},
};

const Unserved* find(std::string_view name) {
  const auto found = std::find_if(kUnserved.begin(), kUnserved.end(), [name](const auto& field) { return field.name == name; });
  return found == kUnserved.end() ? nullptr : &*found;
}

}  // namespace

std::span<const UnservedField> unserved_fields() { return kUnserved; }

bool is_unserved(std::string_view name) { return find(name) != nullptr; }

Status check_unserved(std::string_view name, const Json& value) {
  if (value.is_null()) return {};
  const Unserved& field = *find(name);
  const Json neutral = Json::parse(field.neutral);
  if (std::find(neutral.begin(), neutral.end(), value) != neutral.end()) return {};
  if (!field.instead.empty()) return unsupported("'{}' is not served: {}", name, field.instead);
  return unsupported("'{}' is not served; leave it out{}", name,
                     neutral.empty() ? "" : fmt::format(" or send {}", dumped(neutral.front())));
}

}  // namespace choral::requests
