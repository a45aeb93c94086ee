// The program's commands and flags as its command line declares them, for whatever lists them all: scripts that complete what is
// typed into a shell. Read once from CLI11's tree, so that a flag that is added is completed. Pure.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace choral::apps {

enum class FlagValue { kNone, kFile, kFolder, kOther };

struct CompletedFlag {
  std::vector<std::string> names = {};  // "-t", "--threads"
  FlagValue value = FlagValue::kNone;
  std::string type = {};  // of the value: "N"
  std::string what = {};
  bool repeats = false;
};

struct CompletedCommand {
  std::vector<std::string> words = {};  // {"adapter", "check"}; none: the program itself
  std::string what = {};
  std::vector<CompletedFlag> flags = {};
  std::vector<std::string> commands = {};  // that may follow
  bool takes_files = false;                // else only flags and commands may follow
};

// Every command under `program` that has a name, the program first.
std::vector<CompletedCommand> completed_commands(const CLI::App& program);

}  // namespace choral::apps
