// Who answers: the base, an adapter, or a mix, as it is written on a command line: "base", "pirate", "pirate:0.5",
// "pirate+yoda:0.5". And which adapters there are to choose from.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter_flags.h"
#include "choral/llm.h"

namespace choral::apps {

struct Voice {
  std::string name = "base";              // as it was written
  std::vector<AdapterUse> adapters = {};  // empty: the base
};

// NAME[:FACTOR] joined by "+", or "base". What follows the last ":" of a name is a factor only when it is a number.
Result<Voice> parse_voice(std::string_view text);
// Voices between commas; each only once.
Result<std::vector<Voice>> parse_voices(std::string_view text);

// --adapter NAME, several of which act together; none: where --lora brings one adapter and nothing else does, that one, else the
// base, and `unused` says which are loaded and act nowhere. A name that no flag leads to is an error.
Result<Voice> chosen_voice(const std::vector<std::string>& texts, const AdapterFlags& flags, const EngineOptions& options,
                           std::string& unused);

// All that a request could name: loaded ones and those in `root` (may be empty).
std::vector<std::string> known_adapters(const LLM& llm, const std::string& root);
std::vector<std::string> known_adapters(const EngineOptions& options);  // before they are loaded
// A name that is neither among `known` nor a folder of `root` (may be empty) is an error that tells the nearest one.
Status check_voice(const Voice& voice, std::span<const std::string> known, const std::string& root);

}  // namespace choral::apps
