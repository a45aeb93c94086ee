// Messages as clients may read them: without paths of the server, and short. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace choral::serve {

// Each place where `what` stands, if that is more than a character.
void replace_all(std::string& text, const std::string& what, std::string_view with);
// What begins with '/' where a word can begin and is no endpoint becomes "(a path)".
std::string without_absolute_paths(std::string_view text);
// A message of many lines, as those that list all that is wrong with a file, as one: its first line and the first few of the
// rest.
std::string in_one_line(std::string_view text);

}  // namespace choral::serve
