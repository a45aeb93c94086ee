// What guesses tokens, as the options say it: --speculative off, or some of ngram, traffic and draft=MODEL with commas; ngram is
// always among them. And --draft-model MODEL. Pure.
#pragma once

#include <string>

#include "choral/llm.h"

namespace choral::engine {

struct SpeculationChoice {
  bool guesses = true;
  bool keeps_traffic = false;  // what ended answers said
  std::string draft_model;     // empty: none
};

// invalid_argument: a choice that there is not, two draft models, or what is said of one where there is none.
Result<SpeculationChoice> speculation_choice(const EngineOptions& options);

}  // namespace choral::engine
