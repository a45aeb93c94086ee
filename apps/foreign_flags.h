// Flags of llama.cpp and vLLM that are none here, and what is meant by them: who brings a command line from there is told. Pure;
// any thread.
#pragma once

#include <string_view>

namespace choral::apps {

// "here it is …"; empty for a flag that nobody has. `flag` as typed, without a value behind "=".
std::string_view said_here(std::string_view flag);

}  // namespace choral::apps
