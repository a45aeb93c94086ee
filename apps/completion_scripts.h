// What each shell wants to be told so that it completes the program's commands and flags: one script a shell, from one list. The
// scripts need nothing but the shell. Pure.
#pragma once

#include <span>
#include <string>

#include "completion_tree.h"

namespace choral::apps {

std::string bash_completion(std::span<const CompletedCommand> commands);
std::string zsh_completion(std::span<const CompletedCommand> commands);
std::string fish_completion(std::span<const CompletedCommand> commands);

}  // namespace choral::apps
