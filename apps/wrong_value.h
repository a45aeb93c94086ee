// What CLI11 says of a flag's value, in the words of the other messages. Pure; any thread.
#pragma once

#include <string>

namespace choral::apps {

// "Could not convert: --port = x", "--port: 1 required N missing", "--port: At Most 1 required but received 2"; other sentences
// stay.
std::string in_our_words(const std::string& said);

}  // namespace choral::apps
