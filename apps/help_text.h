// --help: CLI11's layout with the program's name in front of a command's, lines cut between words at the terminal's edge, and
// without CLI11's marks of flags that switch something off. Main thread only.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace choral::apps {

// "choral adapter check"
std::string whole_name(const CLI::App& command);

class HelpText : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace choral::apps
