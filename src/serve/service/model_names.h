// `model` of a request: the base or an adapter. The base goes by its served names and by "base", an adapter by its own name,
// "base:name" or "base::name" with any of these. The base's names win: an adapter that is called as a base with a colon goes by
// the longer form alone. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace choral::serve {

// The adapter's name; empty for the base, also when nothing is named. Whether there is such an adapter, the engine knows.
std::string_view adapter_named(std::string_view model, std::span<const std::string> base_names);

// Whether it leaves open who answers: nothing, or what the whole server is called, which clients of llama.cpp send whatever they
// want. "base" leaves nothing open.
bool leaves_adapter_open(std::string_view model, std::span<const std::string> base_names);

}  // namespace choral::serve
