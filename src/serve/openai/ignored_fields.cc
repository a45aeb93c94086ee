#include "serve/openai/ignored_fields.h"

#include <algorithm>
#include <array>

namespace choral::serve {
namespace {

namespace because {
constexpr std::string_view kNobody = "nothing is recorded of users";
constexpr std::string_view kStored = "nothing is stored";
constexpr std::string_view kOneTier = "all requests are served alike; `priority` orders them";
constexpr std::string_view kCache = "prompts are found in the cache by their tokens; `cache_salt` divides it";
constexpr std::string_view kGuess =
    "before each step guesses are weighed by how likely they are and by what the step costs; the answer is the same";
constexpr std::string_view kModerated = "nothing is moderated";
constexpr std::string_view kSpaces = "texts are decoded as the model's own tokenizer file says";
constexpr std::string_view kBeams = "it is of beam search, which `use_beam_search` asks for";
constexpr std::string_view kIds = "the header X-Request-Id names a request";
constexpr std::string_view kAtOnce = "each piece is sent when it is there";
constexpr std::string_view kTold = "it is always told";
constexpr std::string_view kOff = "it tunes what is off";
constexpr std::string_view kSlots = "there are no slots, and no context is cut";
constexpr std::string_view kTimings = "times are in GET /metrics";
constexpr std::string_view kTemplate = "the server's chat template and --reasoning-parser decide";
constexpr std::string_view kWhere = "where it is computed changes nothing";
}  // namespace because

constexpr std::array kIgnoredFields{
    IgnoredField{"user", because::kNobody},
    IgnoredField{"safety_identifier", because::kNobody},
    IgnoredField{"store", because::kStored},
    IgnoredField{"metadata", because::kStored},
    IgnoredField{"service_tier", because::kOneTier},
    IgnoredField{"prompt_cache_key", because::kCache},
    IgnoredField{"prompt_cache_retention", because::kCache},
    IgnoredField{"prompt_cache_options", because::kCache},
    IgnoredField{"cache_prompt", because::kCache},
    IgnoredField{"speculative.n_min", because::kGuess},
    IgnoredField{"speculative.p_min", because::kGuess},
    IgnoredField{"moderation", because::kModerated},
    IgnoredField{"spaces_between_special_tokens", because::kSpaces},
    IgnoredField{"length_penalty", because::kBeams},
    IgnoredField{"early_stopping", because::kBeams},
    IgnoredField{"session_id", because::kIds},
    IgnoredField{"request_id", because::kIds},
    IgnoredField{"stream_interval", because::kAtOnce},
    IgnoredField{"include_stop_reason", because::kTold},
    IgnoredField{"mirostat_tau", because::kOff},
    IgnoredField{"mirostat_eta", because::kOff},
    IgnoredField{"dynatemp_exponent", because::kOff},
    IgnoredField{"adaptive_decay", because::kOff},
    IgnoredField{"grammar_triggers", because::kOff},
    IgnoredField{"id_slot", because::kSlots},
    IgnoredField{"n_keep", because::kSlots},
    IgnoredField{"n_discard", because::kSlots},
    IgnoredField{"n_cache_reuse", because::kCache},
    IgnoredField{"sse_ping_interval", because::kAtOnce},
    IgnoredField{"chat_format", because::kTemplate},
    IgnoredField{"thinking_forced_open", because::kTemplate},
    IgnoredField{"preserved_tokens", because::kTemplate},
    IgnoredField{"backend_sampling", because::kWhere},
};

}  // namespace

std::span<const IgnoredField> ignored_fields() { return kIgnoredFields; }

bool is_ignored(std::string_view name) {
  return std::any_of(kIgnoredFields.begin(), kIgnoredFields.end(),
                     [name](const IgnoredField& field) { return field.name == name; });
}

}  // namespace choral::serve
