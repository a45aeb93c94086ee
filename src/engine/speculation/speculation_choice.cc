#include "engine/speculation/speculation_choice.h"

#include <algorithm>

#include "base/status.h"

namespace choral::engine {
namespace {

constexpr std::string_view kDraft = "draft=";

}  // namespace

Result<SpeculationChoice> speculation_choice(const EngineOptions& options) {
  const std::string_view said = options.speculative;
  SpeculationChoice choice{.guesses = said != "off", .draft_model = options.draft_model};
  for (std::string_view rest = said; choice.guesses && !rest.empty();) {
    // What a model is called may have commas in it, so it stands last.
    const bool is_draft = rest.starts_with(kDraft);
    const std::string_view one = rest.substr(0, is_draft ? rest.size() : rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    if (is_draft) {
      const std::string_view named = one.substr(kDraft.size());
      if (named.empty()) return invalid_argument("--speculative {}: name a model behind draft=", said);
      if (!choice.draft_model.empty() && choice.draft_model != named)
        return invalid_argument("--speculative {} and --draft-model {}: give one of them", said, choice.draft_model);
      choice.draft_model = named;
    } else if (one == "traffic") {
      choice.keeps_traffic = true;
    } else if (one != "ngram") {
      return invalid_argument(
          "--speculative {}: choose off, or some of ngram, traffic and draft=MODEL, with commas, that one last", said);
    }
  }
  if (said.empty()) return invalid_argument("--speculative: choose off, or some of ngram, traffic and draft=MODEL");
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
