#include "completion_tree.h"

#include <CLI/CLI.hpp>

namespace choral::apps {
namespace {

FlagValue value_of(const CLI::Option& option) {
  if (option.get_expected_max() == 0) return FlagValue::kNone;
  const std::string type = option.get_type_name();
  if (type == "DIR") return FlagValue::kFolder;
  return type == "FILE" || type == "PATH" ? FlagValue::kFile : FlagValue::kOther;
}

CompletedFlag flag_of(const CLI::Option& option) {
  CompletedFlag flag{.names = {},
                     .value = value_of(option),
                     .type = option.get_type_name(),
                     .what = option.get_description(),
                     .repeats = option.get_items_expected_max() > 1};
  for (const auto& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) flag.names.push_back("--" + name);
  return flag;
}

void add(const CLI::App& app, std::vector<std::string> words, std::vector<CompletedCommand>& all) {
  CompletedCommand command{.words = std::move(words), .what = app.get_description()};
  for (const auto* option : app.get_options()) {
    if (option->get_positional()) command.takes_files = true;
    if (CompletedFlag flag = flag_of(*option); !flag.names.empty()) command.flags.push_back(std::move(flag));
  }
  const auto subs = app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
  for (const auto* sub : subs) command.commands.push_back(sub->get_name());
  all.push_back(command);
  for (const auto* sub : subs) {
    std::vector<std::string> longer = command.words;
    longer.push_back(sub->get_name());
    add(*sub, std::move(longer), all);
  }
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const CLI::App& program) {
  std::vector<CompletedCommand> all;
  add(program, {}, all);
  return all;
}

}  // namespace choral::apps
