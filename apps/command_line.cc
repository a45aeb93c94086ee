#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <regex>
#include <span>

#include "base/nearest_name.h"
#include "foreign_flags.h"
#include "shell_word.h"

namespace choral::apps {
namespace {

using Words = std::vector<std::string>;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// "-x", "--x"; neither "-" nor "-1".
bool is_flag(std::string_view word) { return word.size() > 1 && word[0] == '-' && (word[1] == '-' || is_letter(word[1])); }

std::string name_of(std::string_view word) { return std::string(word.substr(0, word.find('='))); }

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }

Words names_of_commands(const CLI::App& app) {
  Words names;
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(sub->get_name());
  return names;
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

// "choral serve -m x", as a shell reads it.
std::string as_typed(std::string_view command, std::span<const std::string> words) {
  std::string line = fmt::format("choral {}", command);
  for (const auto& word : words) line += " " + shell_word(word);
  return line;
}

// Whose flags these are.
std::string_view meant_command(const Words& words) {
  const auto has = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(words.begin(), words.end(),
                       [&](const auto& word) { return std::find(names.begin(), names.end(), name_of(word)) != names.end(); });
  };
  if (has({"-cnv", "--conversation", "-i", "--interactive"})) return "chat";
  if (has({"-p", "--prompt", "-f", "--file", "--input"})) return "generate";
  if (has({"--host", "--port", "--uds", "--api-key", "--served-model-name", "-a", "--alias", "-np", "--parallel"}))
    return "serve";
  return "chat";
}

Status first_word_is_no_command(const CLI::App& program, const Words& words) {
  const std::string& first = words.front();
  if (is_flag(first)) {
    if (program.get_option_no_throw(name_of(first)) != nullptr) return {};
    const auto is_known = [&](const char* command) {
      return command_named(program, command)->get_option_no_throw(name_of(first)) != nullptr;
    };
    if (foreign_flag(name_of(first)) == nullptr && !is_known("generate") && !is_known("serve")) return {};
    return invalid_argument("choral wants a command in front of {}: {}", name_of(first), as_typed(meant_command(words), words));
  }
  const bool is_command = command_named(program, first) != nullptr;
  if (const auto* foreign = foreign_command(first, words.size() > 1 ? words[1] : "");
      foreign != nullptr && (!is_command || foreign->words != first)) {
    const std::string here =
        foreign->same.empty() ? std::string(foreign->instead) : as_typed(foreign->same, std::span(words).subspan(1));
    return invalid_argument("choral has no command '{}'; here it is {}", foreign->words, here);
  }
  if (is_command) return {};
  std::error_code ignored;
  if (first.ends_with(".gguf") || first.find('/') != first.npos || std::filesystem::exists(first, ignored)) {
    return invalid_argument("choral has no command '{}'. Is it a model? {}", first, as_typed(meant_command(words), words));
  }
  const std::string nearest = nearest_name(first, names_of_commands(program));
  return invalid_argument("choral has no command '{}'{} (choral --help lists them)", first,
                          nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

// A word that is no flag and that nobody took.
Status stray_word(const std::string& word, const CLI::App& command, const std::string& name) {
  const Words commands = names_of_commands(command);
  if (!commands.empty()) {
    const std::string nearest = nearest_name(word, commands);
    return invalid_argument("{} has no command '{}'{} ({} --help lists them)", name, word,
                            nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest), name);
  }
  if (word.starts_with("http://") || word.starts_with("https://"))
    return invalid_argument("{}: what is '{}'? `choral load` names a server by --url ({} --help)", name, word, name);
  return invalid_argument("{}: what is '{}'? Texts with spaces need quotes ({} --help)", name, word, name);
}

// "choral generate": the first command that has the flag.
std::string who_has(const CLI::App& app, const std::string& name, const std::string& flag) {
  if (app.get_option_no_throw(flag) != nullptr) return name;
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (auto found = who_has(*sub, name + " " + sub->get_name(), flag); !found.empty()) return found;
  }
  return "";
}

bool is_negative(std::string_view flag) { return flag.starts_with("--no-") || flag.starts_with("--disable-"); }

const CLI::App& command_of(const CLI::App& program, const Words& words, size_t& begin) {
  const CLI::App* command = &program;
  for (begin = 0; begin < words.size(); ++begin) {
    const CLI::App* inner = command_named(*command, words[begin]);
    if (inner == nullptr) break;
    command = inner;
  }
  return *command;
}

}  // namespace

std::string nearest_flag(std::string_view typed, const std::vector<std::string>& flags) {
  Words alike;
  std::copy_if(flags.begin(), flags.end(), std::back_inserter(alike),
               [&](const auto& flag) { return is_negative(flag) == is_negative(typed); });
  return nearest_name(typed, alike);
}

Result<CommandLine> CommandLine::read(const CLI::App& program, std::vector<std::string> words) {
  CommandLine line(program);
  if (!words.empty()) CHORAL_RETURN_IF_ERROR(first_word_is_no_command(program, words));
  size_t begin = 0;
  const CLI::App& command = command_of(program, words, begin);
  line.command_ = program.get_name();
  for (size_t i = 0; i < begin; ++i) line.command_ += " " + words[i];
  line.read_flags(command, words, begin);
  return line;
}

void CommandLine::read_flags(const CLI::App& command, const std::vector<std::string>& words, size_t begin) {
  parsed_.assign(words.begin(), words.begin() + static_cast<ptrdiff_t>(begin));
  for (size_t i = begin; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      parsed_.insert(parsed_.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
      return;
    }
    const bool has_next = i + 1 < words.size();
    const std::string name = name_of(word);
    const bool has_value = name.size() < word.size();
    if (!is_flag(word)) {
      parsed_.push_back(word);
    } else if (const auto* own = command.get_option_no_throw(name); own != nullptr) {
      parsed_.push_back(word);
      if (takes_value(*own) && !has_value && has_next) parsed_.push_back(words[++i]);
    } else if (const ForeignFlag* foreign = foreign_flag(name); foreign != nullptr) {
      std::string value = has_value ? word.substr(name.size() + 1) : "";
      const bool takes_next = foreign->value == ForeignFlag::Value::kOne
                                  ? has_next && !is_flag(words[i + 1])
                                  : foreign->value == ForeignFlag::Value::kMaybe && has_next && is_switch_word(words[i + 1]);
      if (!has_value && takes_next) value = words[++i];
      if (foreign->changes_nothing(value)) {
        notes_.push_back(foreign->note(value.empty() ? name : name + " " + value));
      } else {
        wrong_.push_back({name, fmt::format("here it is {}", foreign->instead)});
      }
    } else if (word[1] != '-' && word.size() > 2 && std::all_of(word.begin() + 1, word.end(), is_letter)) {
      wrong_.push_back({word, "flags of several letters begin with --"});  // CLI11 would read -fast as -f with the value ast
    } else {
      parsed_.push_back(word);
    }
  }
}

Status CommandLine::check(const CLI::ParseError* met) const {
  std::vector<Wrong> flags = wrong_;
  std::string value, stray;
  if (met != nullptr) {
    size_t ignored = 0;
    const CLI::App& command = command_of(program_, parsed_, ignored);
    Words known;
    for (const auto* option : command.get_options()) {
      for (const auto& name : option->get_lnames()) known.push_back("--" + name);
    }
    for (const auto& word : program_.remaining(true)) {
      const std::string name = name_of(word);
      if (!is_flag(word)) {
        if (stray.empty()) stray = word;
        continue;
      }
      const std::string elsewhere = who_has(program_, program_.get_name(), name), nearest = nearest_flag(name, known);
      flags.push_back({name, !elsewhere.empty() ? fmt::format("{} has it", elsewhere)
                             : !nearest.empty() ? fmt::format("did you mean {}?", nearest)
                                                : ""});
    }
    if (dynamic_cast<const CLI::ExtrasError*>(met) == nullptr) value = in_our_words(met->what());
    if (flags.empty() && value.empty()) return stray_word(stray, command, command_);
  }
  if (flags.empty() && value.empty()) return {};
  if (flags.empty()) return invalid_argument("{} ({} --help)", value, command_);
  const auto told = [](const Wrong& wrong) {
    return fmt::format("has no flag {}{}{}", wrong.flag, wrong.what.empty() ? "" : "; ", wrong.what);
  };
  if (flags.size() == 1 && value.empty())
    return invalid_argument("{} {} ({} --help lists them)", command_, told(flags.front()), command_);
  std::string list;
  for (const auto& wrong : flags) list += "\n  " + told(wrong);
  if (!value.empty()) list += "\n  " + value;
  return invalid_argument("{}: several words are wrong ({} --help)\n{}", command_, command_, list.substr(1));
}

std::string in_our_words(const std::string& said) {
  constexpr size_t kMostRead = 500;  // std::regex takes stack by the letter
  static const std::regex kKind(R"(Could not convert: (\S+) = (.*))"), kMissing(R"((\S+): \d+ required (.*) missing)"),
      kTwice(R"((\S+): At Most 1 required but received (\d+))");
  std::smatch parts;
  if (said.size() > kMostRead) return said;
  if (std::regex_match(said, parts, kKind))
    return fmt::format("{}: '{}' is not a number that it takes", parts.str(1), parts.str(2));
  if (std::regex_match(said, parts, kMissing)) return fmt::format("{0} wants a value: {0} {1}", parts.str(1), parts.str(2));
  if (std::regex_match(said, parts, kTwice)) return fmt::format("{} is given {} times; give it once", parts.str(1), parts.str(2));
  return said;
}

}  // namespace choral::apps
