// Endpoints of OpenAI, vLLM and llama.cpp that are not served here, and what does what they do: a client that asks for one is
// told by name. Immutable; any thread.
#pragma once

#include <optional>
#include <string_view>

namespace choral::serve {

// What to use in place of the endpoint; nothing: nobody knows it. It goes with and without /v1.
std::optional<std::string_view> instead_of(std::string_view path);

}  // namespace choral::serve
