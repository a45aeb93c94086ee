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
  std::vector<std::string> notes = {};   // of each member that changes nothing, with the reason
};

Result<SpeculativeConfig> read_speculative_config(std::string_view json);
// Of a model by which a server is to guess; "ngram" and "[ngram]" are none.
Status check_speculative_model(std::string_view model);

}  // namespace choral::requests
