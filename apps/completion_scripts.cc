#include "completion_scripts.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace choral::apps {
namespace {

std::string replaced(std::string_view text, char what, std::string_view with) {
  std::string out;
  for (const char c : text) out += c == what ? std::string(with) : std::string(1, c);
  return out;
}

// 'text' for bash and zsh, and for fish, where a backslash in quotes escapes.
std::string in_quotes(std::string_view text) { return "'" + replaced(text, '\'', R"('\'')") + "'"; }
std::string in_fish_quotes(std::string_view text) { return "'" + replaced(replaced(text, '\\', R"(\\)"), '\'', R"(\')") + "'"; }

// " adapter check": what the words before the cursor come to.
std::string path_of(const CompletedCommand& command) {
  std::string path;
  for (const auto& word : command.words) path += " " + word;
  return path;
}

// Each name of `flags` that takes a value of this kind, behind its command's path, as alternatives of a bash pattern.
std::string bash_pattern(std::span<const CompletedCommand> commands, FlagValue value) {
  std::vector<std::string> all;
  for (const auto& command : commands) {
    for (const auto& flag : command.flags) {
      for (const auto& name : flag.names) {
        if (flag.value == value) all.push_back(in_quotes(path_of(command) + " " + name));
      }
    }
  }
  return fmt::format("{}", fmt::join(all, " | "));
}

std::string bash_words(std::span<const CompletedCommand> commands, bool flags) {
  std::string text;
  for (const auto& command : commands) {
    std::vector<std::string> words = flags ? std::vector<std::string>() : command.commands;
    for (const auto& flag : command.flags) {
      if (flags) words.insert(words.end(), flag.names.begin(), flag.names.end());
    }
    if (!words.empty()) text += fmt::format("    {}) words='{}' ;;\n", in_quotes(path_of(command)), fmt::join(words, " "));
  }
  return text;
}

// [ ] : and \ mean something in the specifications of _arguments.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_function(const CompletedCommand& command) {
  return fmt::format("_choral{}", replaced(path_of(command), ' ', "_"));
}

std::string zsh_action(const CompletedFlag& flag) {
  switch (flag.value) {
    case FlagValue::kNone: return "";
    case FlagValue::kFile: return fmt::format(":{}:_files", zsh_text(flag.type));
    case FlagValue::kFolder: return fmt::format(":{}:_files -/", zsh_text(flag.type));
    case FlagValue::kOther: return fmt::format(":{}: ", zsh_text(flag.type));
  }
  return "";
}

std::string zsh_arguments(const CompletedCommand& command) {
  std::string text;
  for (const auto& flag : command.flags) {
    for (const auto& name : flag.names) {
      const bool is_long_with_value = name.starts_with("--") && flag.value != FlagValue::kNone;
      text += fmt::format(" \\\n    {}",
                          in_quotes(fmt::format("{}{}{}[{}]{}", flag.repeats ? "*" : "", name, is_long_with_value ? "=" : "",
                                                zsh_text(flag.what), zsh_action(flag))));
    }
  }
  return text;
}

const CompletedCommand& find(std::span<const CompletedCommand> commands, std::vector<std::string> words) {
  return *std::find_if(commands.begin(), commands.end(), [&](const auto& command) { return command.words == words; });
}

std::string zsh_group(std::span<const CompletedCommand> commands, const CompletedCommand& group) {
  std::string known, cases;
  for (const auto& name : group.commands) {
    std::vector<std::string> words = group.words;
    words.push_back(name);
    const CompletedCommand& sub = find(commands, words);
    known += fmt::format(" \\\n        {}", in_quotes(fmt::format("{}:{}", name, zsh_text(sub.what))));
    cases += fmt::format("        {}) {} ;;\n", name, zsh_function(sub));
  }
  return fmt::format(R"({}() {{
  local context state state_descr line curcontext="$curcontext"
  typeset -A opt_args
  _arguments -C{} \
    '1: :->command' '*:: :->rest'
  case $state in
    command)
      local -a known=({})
      _describe -t commands command known
      ;;
    rest)
      case $words[1] in
{}      esac
      ;;
  esac
}}
)",
                     zsh_function(group), zsh_arguments(group), known, cases);
}

}  // namespace

std::string bash_completion(std::span<const CompletedCommand> commands) {
  std::vector<std::string> paths;
  std::vector<std::string> with_files;
  for (const auto& command : commands) {
    if (!command.words.empty()) paths.push_back(in_quotes(path_of(command)));
    if (command.takes_files) with_files.push_back(in_quotes(path_of(command)));
  }
  return fmt::format(R"(# bash completion of choral, made by `choral completion bash`.
_choral() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} path='' words='' i
  COMPREPLY=()
  if [[ $cur == '=' ]]; then cur=''; fi  # --flag=
  if [[ $prev == '=' ]]; then prev=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {}) path+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path $prev" in
    {})
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      return
      ;;
    {})
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
    {}) return ;;
  esac
  if [[ $cur == -* ]]; then
    case $path in
{}    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    return
  fi
  case $path in
{}    {})
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}
complete -F _choral choral
)",
                     fmt::join(paths, " | "), bash_pattern(commands, FlagValue::kFolder),
                     bash_pattern(commands, FlagValue::kFile), bash_pattern(commands, FlagValue::kOther),
                     bash_words(commands, true), bash_words(commands, false), fmt::join(with_files, " | "));
}

std::string zsh_completion(std::span<const CompletedCommand> commands) {
  std::string text = "#compdef choral\n# zsh completion of choral, made by `choral completion zsh`.\n";
  for (const auto& command : commands) {
    text += command.commands.empty() ? fmt::format("{}() {{\n  _arguments{}{}\n}}\n", zsh_function(command),
                                                   zsh_arguments(command), command.takes_files ? " \\\n    '*:file:_files'" : "")
                                     : zsh_group(commands, command);
  }
  // As a file of $fpath its text is the function; sourced, it says where it belongs.
  return text + "if [[ $funcstack[1] == _choral ]]; then _choral \"$@\"; else compdef _choral choral; fi\n";
}

std::string fish_completion(std::span<const CompletedCommand> commands) {
  std::vector<std::string> paths;
  for (const auto& command : commands) {
    if (!command.words.empty()) paths.push_back(in_fish_quotes(path_of(command)));
  }
  std::string text = fmt::format(R"(# fish completion of choral, made by `choral completion fish`.
function __choral_is
    set -l path ''
    for word in (commandline -opc)[2..-1]
        if contains -- "$path $word" {}
            set path "$path $word"
        end
    end
    test "$path" = "$argv[1]"
end
complete -c choral -f
)",
                                 fmt::join(paths, " "));
  for (const auto& command : commands) {
    const std::string here = fmt::format("complete -c choral -n {}", in_fish_quotes("__choral_is '" + path_of(command) + "'"));
    for (const auto& name : command.commands) {
      std::vector<std::string> words = command.words;
      words.push_back(name);
      text += fmt::format("{} -a {} -d {}\n", here, name, in_fish_quotes(find(commands, words).what));
    }
    if (command.takes_files) text += here + " -F\n";
    for (const auto& flag : command.flags) {
      text += here;
      for (const auto& name : flag.names) text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (flag.value == FlagValue::kFile) text += " -r -F";
      if (flag.value == FlagValue::kFolder) text += " -x -a '(__fish_complete_directories)'";
      if (flag.value == FlagValue::kOther) text += " -x";
      text += fmt::format(" -d {}\n", in_fish_quotes(flag.what));
    }
  }
  return text;
}

}  // namespace choral::apps
