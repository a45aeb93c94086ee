#include "engine/speculation/speculation_choice.h"

#include "base/status.h"

namespace choral::engine {
namespace {

constexpr std::string_view kLookup = "ngram", kDraft = "draft=", kOff = "off";

}  // namespace

Result<SpeculationChoice> speculation_choice(const EngineOptions& options) {
  const std::string_view said = options.speculative;
  SpeculationChoice choice{.guesses = said != kOff, .draft_model = options.draft_model};
  const std::string_view of_list = said.starts_with("ngram,draft=") ? said.substr(kLookup.size() + 1) : said;
  if (of_list.starts_with(kDraft)) {
    const std::string_view named = of_list.substr(kDraft.size());
    if (named.empty()) return invalid_argument("--speculative {}: name a model behind draft=", said);
    if (!choice.draft_model.empty() && choice.draft_model != named)
      return invalid_argument("--speculative {} and --draft-model {}: give one of them", said, choice.draft_model);
    choice.draft_model = named;
  } else if (said != kLookup && said != kOff) {
    return invalid_argument("--speculative {}: choose ngram, draft=MODEL or off", said);
  }
  if (!choice.guesses && !choice.draft_model.empty())
    return invalid_argument("--speculative off: --draft-model {} would guess nothing; leave out one of them", choice.draft_model);
  if (choice.draft_model.empty() && !options.draft_adapters.empty())
    return invalid_argument("--draft-lora {}: there is no draft model; give --draft-model MODEL", options.draft_adapters[0].name);
  if (choice.draft_model.empty() && options.draft_quantization != "auto")
    return invalid_argument("--draft-quantization {}: there is no draft model; give --draft-model MODEL",
                            options.draft_quantization);
  return choice;
}

}  // namespace choral::engine
