// vLLM's --speculative-config as what it means here: JSON such as {"method": "ngram", "num_speculative_tokens": 5}. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::requests {

struct SpeculativeConfig {
  std::optional<int> most_guessed = {};  // EngineOptions'
  std::string draft_model = {};          // empty: none
  std::vector<std::string> notes = {};   // of each member that changes nothing, with the reason
};

Result<SpeculativeConfig> read_speculative_config(std::string_view json);
// The draft model that vLLM's old flag names; "ngram" and "[ngram]" are none: empty.
std::string draft_model_of(std::string_view speculative_model);

}  // namespace choral::requests
