#include "settings.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

#include "base/ascii.h"
#include "base/log.h"
#include "base/printable.h"
#include "command_line.h"
#include "foreign_flags.h"
#include "io/mapped_file.h"

namespace choral::apps {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kConfigFlag = "--config";

struct FileValue {
  std::vector<std::string> values;
  int line = 0;
};
using FileValues = std::map<std::string, FileValue, std::less<>>;  // by flag without its dashes

// "text", 'text' or text up to a comment.
Result<std::string> unquoted(std::string_view text) {
  if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
    const size_t end = text.find(text.front(), 1);
    const std::string_view rest = end == text.npos ? "" : trimmed(text.substr(end + 1));
    if (end == text.npos || (!rest.empty() && rest.front() != '#')) return invalid_argument("the quotes do not match");
    return std::string(text.substr(1, end - 1));
  }
  return std::string(trimmed(text.substr(0, std::min(text.find(" #"), text.size()))));
}

// "[a, b]" as two values; anything else is one.
Result<std::vector<std::string>> values_of(std::string_view text) {
  std::vector<std::string> values;
  if (!text.starts_with('[') || !text.ends_with(']')) {
    CHORAL_TRY(values.emplace_back(), unquoted(text));
    return values;
  }
  text = text.substr(1, text.size() - 2);
  while (!trimmed(text).empty()) {
    const size_t end = std::min(text.find(','), text.size());
    CHORAL_TRY(values.emplace_back(), unquoted(trimmed(text.substr(0, end))));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return values;
}

Result<FileValues> read_file(const std::string& path) {
  CHORAL_TRY(const std::string text, io::read_whole_file(path, kMaxFileBytes).while_(kConfigFlag));
  FileValues values;
  std::string_view rest = text;
  for (int line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view said = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (said.empty() || said.front() == '#') continue;
    const size_t mark = said.find_first_of("=:");
    const auto wrong = [&](std::string_view why) {
      return invalid_argument("{}:{}: {}; write `name = value`, with a flag's name", path, line, why);
    };
    if (mark == said.npos) return wrong("there is no value");
    std::string name(trimmed(said.substr(0, mark)));
    if (name.starts_with("--")) name.erase(0, 2);
    std::replace(name.begin(), name.end(), '_', '-');
    auto value = values_of(trimmed(said.substr(mark + 1)));
    if (!value.ok()) return wrong(value.status().message());
    if (!values.emplace(std::move(name), FileValue{*std::move(value), line}).second) return wrong("the name stands there twice");
  }
  return values;
}

// The long name that a flag's variable and its line in a file are called after.
std::string main_name(const CLI::Option& option) { return option.get_lnames().empty() ? "" : option.get_lnames().front(); }

// "(1024)" at the end of a description is the default in words; else what the flag's variable holds.
std::string default_of(CLI::Option& option) {
  const std::string& text = option.get_description();
  const size_t begin = text.rfind('(');
  if (begin != text.npos && text.ends_with(')')) return text.substr(begin + 1, text.size() - begin - 2);
  if (option.get_expected_max() == 0) return "off";
  option.capture_default_str();
  const std::string held = option.get_default_str();
  return held.empty() || held == "[]" || held == "{}" ? "none" : held;
}

Status give(CLI::Option& option, const std::vector<std::string>& values, std::string_view origin) {
  // CLI11 says what is wrong with a value by throwing.
  try {
    for (const auto& value : values) {
      const bool is_flag = option.get_expected_max() == 0;
      option.add_result(is_flag ? option.get_flag_value(option.get_lnames().front(), value) : value);
    }
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    return invalid_argument("{}: {}", origin, in_our_words(error.what()));
  }
  return {};
}

// Lines of the file that are no flag's: those of other programs that change nothing here are told and left out.
Status check_names(const FileValues& values, const std::string& path, const std::vector<std::string>& flags) {
  for (const auto& [name, value] : values) {
    const std::string flag = "--" + name, place = fmt::format("{}:{}", path, value.line);
    if (std::find(flags.begin(), flags.end(), flag) != flags.end()) continue;
    const std::string nearest = nearest_flag(flag, flags);
    if (const ForeignFlag* foreign = foreign_flag(flag); foreign == nullptr) {
      return invalid_argument("{}: no flag is called '{}'{}", place, name,
                              nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest.substr(2)));
    } else if (!foreign->changes_nothing(value.values.empty() ? "" : value.values.front())) {
      return invalid_argument("{}: no flag is called '{}'; here it is {}", place, name, foreign->instead);
    } else {
      say("choral: {}: {}\n", terminal_line(place), terminal_line(foreign->note(name)));
    }
  }
  return {};
}

}  // namespace

std::string variable_of(std::string flag) {
  flag.erase(0, flag.find_first_not_of('-'));
  for (char& c : flag) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "CHORAL_" + flag;
}

Status fill_settings(CLI::App& app, std::vector<Setting>* all) {
  const auto options = app.get_options([](const CLI::Option* o) { return !main_name(*o).empty() && main_name(*o) != "help"; });
  FileValues file;
  std::string path;
  std::vector<std::string> known;
  for (CLI::Option* option : options) {
    known.push_back("--" + main_name(*option));
    if (known.back() != kConfigFlag) continue;
    const char* variable = std::getenv(variable_of(known.back()).c_str());
    path = option->count() > 0 ? option->results().front() : variable != nullptr ? variable : "";
  }
  if (!path.empty()) {
    CHORAL_TRY(file, read_file(path));
    CHORAL_RETURN_IF_ERROR(check_names(file, path, known));
  }
  for (CLI::Option* option : options) {
    const std::string name = main_name(*option), variable = variable_of(name);
    Setting setting{.flag = "--" + name, .value = default_of(*option), .origin = std::string(kDefaultOrigin)};
    setting.is_secret = name.ends_with("api-key") || name.ends_with("-token");
    std::vector<std::string> values;
    const char* set = std::getenv(variable.c_str());
    if (option->count() > 0) {
      values = option->results();
      setting.origin = "command line";
    } else if (set != nullptr && *set != '\0') {
      values = {set};
      setting.origin = variable;
    } else if (const auto found = file.find(name); found != file.end()) {
      values = found->second.values;
      setting.origin = fmt::format("{}:{}", path, found->second.line);
    }
    if (!values.empty()) {
      setting.value.clear();
      for (const auto& value : values) setting.value += (setting.value.empty() ? "" : " ") + value;
    }
    if (option->count() == 0 && !values.empty()) CHORAL_RETURN_IF_ERROR(give(*option, values, setting.origin));
    if (all != nullptr) all->push_back(std::move(setting));
  }
  return {};
}

}  // namespace choral::apps
