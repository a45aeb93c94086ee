// Who answers: the base, an adapter, or a mix, as it is written on a command line: "base", "pirate", "pirate:0.5",
// "pirate+yoda:0.5". And which adapters there are to choose from.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// All that a request could name: loaded ones and those in `root` (may be empty).
std::vector<std::string> known_adapters(const LLM& llm, const std::string& root);
// A name that is neither among `known` nor a folder of `root` (may be empty) is an error that tells the nearest one.
Status check_voice(const Voice& voice, std::span<const std::string> known, const std::string& root);

}  // namespace choral::apps
