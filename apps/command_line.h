// A command line as it was typed, read before and beside CLI11: the first word is a command; flags of llama.cpp and vLLM that
// change nothing here are taken out and told; whatever is wrong with the others is told together. Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace choral::apps {

class CommandLine {
 public:
  // `words` without the program's name. An error when the first of them is no command: it says the line that was meant.
  static Result<CommandLine> read(const CLI::App& program, std::vector<std::string> words);

  const std::vector<std::string>& for_parser() const { return parsed_; }
  // What parsing `for_parser()` met, with what was found before it: fine when nothing is wrong.
  Status check(const CLI::ParseError* met) const;
  // Of flags that are left out, one a line.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Wrong {
    std::string flag;
    std::string what;  // behind the flag's name
  };
  explicit CommandLine(const CLI::App& program) : program_(program) {}
  void read_flags(const CLI::App& command, const std::vector<std::string>& words, size_t begin);

  const CLI::App& program_;
  std::string command_;  // "choral adapter check"
  std::vector<std::string> parsed_;
  std::vector<std::string> notes_;
  std::vector<Wrong> wrong_;
};

// What CLI11 says of a flag's value, in the words of the other messages: "Could not convert: --port = x", "--port: 1 required N
// missing", "--port: At Most 1 required but received 2"; other sentences stay.
std::string in_our_words(const std::string& said);

// The nearest of `flags` to what was typed, and never its opposite: "--no-x" is not near to "--x". Empty when none is.
std::string nearest_flag(std::string_view typed, const std::vector<std::string>& flags);

}  // namespace choral::apps
