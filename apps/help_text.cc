#include "help_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "answer_layout.h"

namespace choral::apps {
namespace {

constexpr int kNames = 44;  // columns; what a flag does stands behind
constexpr int kLeastNames = 12;
constexpr int kLeastText = 16;
constexpr int kProse = 118;  // columns of text where there is no terminal

std::string prose(std::string_view text) {
  const int columns = terminal_columns();
  std::string out;
  for (const auto& line : wrap_text(text, columns > 0 ? columns : kProse)) out += line + "\n";
  return out;
}

// Where there is no terminal what a flag does is one line.
std::string entry(const std::string& names, const std::string& what) {
  const int columns = terminal_columns();
  const int column = columns > 0 ? std::clamp(columns * 2 / 5, kLeastNames, kNames) : kNames;
  std::string out = "  " + names;
  bool is_beside = text_width(out) < column;
  for (const auto& line : wrap_text(what, columns > 0 ? std::max(columns - column, kLeastText) : 0)) {
    if (!is_beside) out += "\n";
    out.append(static_cast<size_t>(is_beside ? column - text_width(out) : column), ' ');
    out += line;
    is_beside = false;
  }
  return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string whole_name(const CLI::App& command) {
  std::string name = command.get_name();
  for (const auto* outer = command.get_parent(); outer != nullptr; outer = outer->get_parent())
    name = outer->get_name() + " " + name;
  return name;
}

std::string HelpText::make_usage(const CLI::App* app, std::string) const {
  return prose(CLI::Formatter::make_usage(app, whole_name(*app)));
}

std::string HelpText::make_description(const CLI::App* app) const { return prose(app->get_description()); }

std::string HelpText::make_footer(const CLI::App* app) const { return app->get_footer().empty() ? "" : prose(app->get_footer()); }

std::string HelpText::make_subcommand(const CLI::App* sub) const { return entry(sub->get_name(), sub->get_description()); }

std::string HelpText::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

// CLI11 shows a flag that turns something off as --no-x{false}.
std::string HelpText::make_option_name(const CLI::Option* option, bool is_positional) const {
  std::string text = CLI::Formatter::make_option_name(option, is_positional);
  for (size_t at = 0; (at = text.find("{false}")) != text.npos;) text.erase(at, std::strlen("{false}"));
  return text;
}

}  // namespace choral::apps
