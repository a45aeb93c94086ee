// The program `choral`: finds the subcommand, and turns an error into a message and an exit code.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstring>
#include <span>
#include <sstream>

#include "base/log.h"
#include "base/nearest_name.h"
#include "base/out_of_memory.h"
#include "choral/llm.h"
#include "command.h"
#include "foreign_flags.h"
#include "output_file.h"
#include "standard_files.h"
#include "wrong_value.h"

namespace {

constexpr const char* kFooter =
    "MODEL is a folder with config.json, *.safetensors and tokenizer.json, a GGUF file, or org/name in the local Hugging Face "
    "cache.\n"
    "`choral COMMAND --help` lists a command's flags.\n\n"
    "Exit codes: 0 fine, 1 internal error, 2 wrong usage, 3 not found, 4 broken file, 5 not supported, 6 too large, 7 resources "
    "exhausted,\n8 unavailable, 9 stopped, 10 too late, 11 not permitted.\n"
    "Environment: CHORAL_CPU_LEVEL caps the CPU level, CHORAL_LOG_LEVEL sets the log (warn), HF_HOME is where org/name is looked "
    "up.";

int fail(const choral::Status& status) {
  choral::say("choral: error: {}\n", status.message());
  return choral::exit_code(status.code());
}

const CLI::App& used_command(const CLI::App& app) {
  const CLI::App* used = &app;
  while (!used->get_subcommands().empty()) used = used->get_subcommands().front();
  return *used;
}

// "choral adapter check"
std::string whole_name(const CLI::App& command) {
  std::string name = command.get_name();
  for (const auto* outer = command.get_parent(); outer != nullptr; outer = outer->get_parent())
    name = outer->get_name() + " " + name;
  return name;
}

choral::Status said_elsewhere(std::string_view flag) {
  return choral::invalid_argument("choral has no flag {}; here it is {}", flag, choral::apps::said_here(flag));
}

// The first word that nobody took, with the nearest one that exists.
choral::Status unknown_word(const CLI::App& app) {
  const CLI::App* used = &used_command(app);
  const auto words = app.remaining(true);
  const auto flag = std::find_if(words.begin(), words.end(), [](const auto& w) { return w.size() > 1 && w.starts_with('-'); });
  std::string typed = flag != words.end() ? *flag : words.empty() ? "" : words.front();
  typed = typed.substr(0, typed.find('='));
  if (!choral::apps::said_here(typed).empty()) return said_elsewhere(typed);
  const auto commands = used->get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string> known;
  if (typed.starts_with('-')) {
    for (const auto* option : used->get_options()) {
      for (const auto& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else {
    for (const auto* sub : commands) known.push_back(sub->get_name());
  }
  const std::string nearest = choral::nearest_name(typed, known);
  const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
  const std::string command = whole_name(*used);
  if (typed.starts_with('-'))
    return choral::invalid_argument("{} has no flag {}{} ({} --help lists them)", command, typed, hint, command);
  if (!commands.empty())
    return choral::invalid_argument("{} has no command '{}'{} ({} --help lists them)", command, typed, hint, command);
  if (typed.starts_with("http://") || typed.starts_with("https://"))
    return choral::invalid_argument("{}: what is '{}'? `choral load` names a server by --url ({} --help)", command, typed,
                                    command);
  return choral::invalid_argument("{}: what is '{}'? Texts with spaces need quotes ({} --help)", command, typed, command);
}

// CLI11 would read -ngl as -n with the value gl.
choral::Status check_before_parsing(std::span<char* const> words) {
  CHORAL_RETURN_IF_ERROR(choral::check_log_level());
  for (const std::string_view word : words.subspan(std::min<size_t>(1, words.size()))) {
    if (word == "--") break;
    const bool one_dash = word.size() > 1 && word[0] == '-' && word[1] != '-';
    if (one_dash && !choral::apps::said_here(word).empty()) return said_elsewhere(word);
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (one_dash && word.size() > 2 && std::all_of(word.begin() + 1, word.end(), is_letter)) {
      return choral::invalid_argument("choral has no flag {}: flags of several letters begin with -- (choral COMMAND --help)",
                                      word);
    }
  }
  return {};
}

std::string version_text() { return "choral " + std::string(choral::version()); }

// CLI11 shows a flag that turns something off as --no-x{false}.
class HelpText : public CLI::Formatter {
 public:
  HelpText() { column_width(44); }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string text = CLI::Formatter::make_option_name(option, is_positional);
    for (size_t at = 0; (at = text.find("{false}")) != text.npos;) text.erase(at, std::strlen("{false}"));
    return text;
  }
};

// Words for flags, as other programs have them: `choral help COMMAND` is `choral COMMAND --help`, `choral version` --version.
void add_words_for_flags(CLI::App& app, choral::apps::Command& command) {
  app.add_subcommand("help", "this list, or a command's flags: help COMMAND");
  auto* version = app.add_subcommand("version", "which choral this is");
  version->callback([&command] { command.run = [] { return choral::apps::print_out(version_text() + "\n"); }; });
}

choral::Result<std::vector<std::string>> without_help_word(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  const CLI::App* about = &app;
  std::string name = app.get_name();
  for (const auto& word : words) {
    const auto subs = about->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (subs.empty()) return choral::invalid_argument("{} has no command '{}' ({} --help lists them)", name, word, name);
    about = subs.front();
    name += " " + word;
  }
  words.emplace_back("--help");
  return words;
}

// CLI11 reads 010 as C does, as 8.
void read_numbers_as_decimals(CLI::App& app) {
  const auto drop_leading_zeros = [](const std::string& text) {
    const size_t begin = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    const size_t first = text.find_first_not_of('0', begin);
    const bool is_number = first != text.npos && text[first] >= '0' && text[first] <= '9';
    return is_number ? text.substr(0, begin) + text.substr(first) : text;
  };
  for (auto* option : app.get_options()) {
    if (option->get_type_name() == "N") option->transform(drop_leading_zeros);
  }
  for (auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) read_numbers_as_decimals(*sub);
}

// What CLI11 writes: the help, the version.
int print_wanted(const CLI::App& app, const CLI::Success& wanted) {
  std::ostringstream text;
  app.exit(wanted, text, text);
  const choral::Status written = choral::apps::print_out(text.str());
  return written.ok() ? 0 : fail(written);
}

}  // namespace

int main(int argc, char** argv) {
  choral::apps::replace_closed_standard_files();
  std::signal(SIGPIPE, SIG_IGN);  // who stops reading what is said does not stop the work; answers: output_file.cc
  CLI::App app{"Choral: large language models on plain CPUs.", "choral"};
  app.set_version_flag("-V,--version", version_text());
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpText>());
  choral::apps::Command command;
  choral::apps::add_generate(app, command);
  choral::apps::add_serve(app, command);
  choral::apps::add_config(app, command);
  choral::apps::add_chat(app, command);
  choral::apps::add_pull(app, command);
  choral::apps::add_tokenize(app, command);
  choral::apps::add_bench(app, command);
  choral::apps::add_load(app, command);
  choral::apps::add_eval(app, command);
  choral::apps::add_quantize(app, command);
  choral::apps::add_adapter(app, command);
  choral::apps::add_doctor(app, command);
  choral::apps::add_completion(app, command);
  add_words_for_flags(app, command);
  read_numbers_as_decimals(app);
  if (const choral::Status wrong = check_before_parsing({argv, argv + argc}); !wrong.ok()) return fail(wrong);
  auto words = without_help_word(app, {argv + std::min(1, argc), argv + argc});
  if (!words.ok()) return fail(words.status());
  std::reverse(words->begin(), words->end());  // as CLI11 wants them
  try {
    app.parse(std::move(*words));
  } catch (const CLI::ExtrasError&) {
    return fail(unknown_word(app));
  } catch (const CLI::Success& wanted) {
    return print_wanted(app, wanted);
  } catch (const CLI::ParseError& error) {
    return fail(
        choral::invalid_argument("{} ({} --help)", choral::apps::in_our_words(error.what()), whole_name(used_command(app))));
  }
  if (!command.run) {
    choral::say("{}", app.get_subcommands().empty() ? app.help() : app.get_subcommands().front()->help());
    return choral::exit_code(choral::Code::kInvalidArgument);
  }
  const choral::Status status = choral::or_out_of_memory("the command cannot go on", command.run);
  return status.ok() ? 0 : fail(status);
}
