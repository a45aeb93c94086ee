// The program `choral`: finds the subcommand, and turns an error into a message and an exit code.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <sstream>

#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "choral/llm.h"
#include "command.h"
#include "command_line.h"
#include "engine/ranks/rank_link.h"
#include "help_text.h"
#include "output_file.h"
#include "terminal_text.h"

namespace {

constexpr const char* kFooter =
    "MODEL is a folder with config.json, *.safetensors and tokenizer.json, a GGUF file, or org/name in the local Hugging Face "
    "cache.\n"
    "`choral COMMAND --help` lists a command's flags.\n\n"
    "Exit codes: 0 fine, 1 internal error, 2 wrong usage, 3 not found, 4 broken file, 5 not supported, 6 too large, 7 resources "
    "exhausted, 8 unavailable, 9 stopped, 10 too late, 11 not permitted.\n"
    "Environment: CHORAL_CPU_LEVEL caps the CPU level, CHORAL_LOG_LEVEL sets the log (warn), HF_HOME is where org/name is looked "
    "up, NO_COLOR takes colours away.";

// A parent may have closed some of them. An empty file that cannot be written takes the place of each, so that no file opened
// later gets its number: reading finds the end, writing fails as it does on a closed descriptor.
void replace_closed_standard_files() {
  int opened = ::open("/dev/null", O_RDONLY);  // the lowest free number is given first
  while (opened >= 0 && opened <= STDERR_FILENO) opened = ::open("/dev/null", O_RDONLY);
  if (opened >= 0) ::close(opened);
}

int fail(const choral::Status& status) {
  choral::apps::say_wrapped(fmt::format("choral: error: {}", status.message()));
  return choral::exit_code(status.code());
}

const CLI::App& used_command(const CLI::App& app) {
  const CLI::App* used = &app;
  while (!used->get_subcommands().empty()) used = used->get_subcommands().front();
  return *used;
}

// Of flags that other programs have and that change nothing here.
void print_notes(const choral::apps::CommandLine& line, const CLI::App& command) {
  const auto* quiet = command.get_option_no_throw("--quiet");
  if (quiet != nullptr && quiet->count() > 0) return;
  for (const auto& note : line.notes()) choral::apps::say_wrapped("choral: " + choral::terminal_line(note));
}

std::string version_text() { return "choral " + std::string(choral::version()); }

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

// Else CLI11 takes `choral bench serve` for the command `serve`.
void one_command_each(CLI::App& app) {
  app.require_subcommand(0, 1);
  for (auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) one_command_each(*sub);
}

// mpirun starts a program several times over, which few commands are made for.
choral::Status run_as_rank(const choral::apps::Command& command, const std::string& name) {
  if (choral::engine::mpi_ranks() > 1 && !command.follow) {
    return choral::unsupported(
        "mpirun divides the model of `choral serve`, `generate` and `run-batch`; start `choral {}` by itself", name);
  }
  return choral::engine::mpi_rank() > 0 ? command.follow() : command.run();
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
  replace_closed_standard_files();
  std::signal(SIGPIPE, SIG_IGN);  // who stops reading what is said does not stop the work; answers: output_file.cc
  CLI::App app{"Choral: large language models on plain CPUs.", "choral"};
  app.set_version_flag("-V,--version", version_text());
  app.footer(kFooter);
  app.formatter(std::make_shared<choral::apps::HelpText>());
  choral::apps::Command command;
  choral::apps::add_generate(app, command);
  choral::apps::add_run_batch(app, command);
  choral::apps::add_serve(app, command);
  choral::apps::add_config(app, command);
  choral::apps::add_chat(app, command);
  choral::apps::add_pull(app, command);
  choral::apps::add_tokenize(app, command);
  choral::apps::add_bench(app, command);
  choral::apps::add_load(app, command);
  choral::apps::add_plan(app, command);
  choral::apps::add_eval(app, command);
  choral::apps::add_quantize(app, command);
  choral::apps::add_adapter(app, command);
  choral::apps::add_doctor(app, command);
  choral::apps::add_completion(app, command);
  add_words_for_flags(app, command);
  read_numbers_as_decimals(app);
  one_command_each(app);
  if (const choral::Status wrong = choral::check_log_level(); !wrong.ok()) return fail(wrong);
  auto words = without_help_word(app, {argv + std::min(1, argc), argv + argc});
  if (!words.ok()) return fail(words.status());
  const auto line = choral::apps::CommandLine::read(app, std::move(*words));
  if (!line.ok()) return fail(line.status());
  std::reverse(words->begin(), words->end());  // as CLI11 wants them
  choral::Status wrong;
  try {
    app.parse(std::vector<std::string>(line->for_parser().rbegin(), line->for_parser().rend()));  // as CLI11 wants them
    wrong = line->check(nullptr);
  } catch (const CLI::Success& wanted) {
    return print_wanted(app, wanted);
  } catch (const CLI::ParseError& error) {
    wrong = line->check(&error);
  }
  if (!wrong.ok()) return fail(wrong);
  if (!command.run) {
    choral::say("{}", app.help());
    return choral::exit_code(choral::Code::kInvalidArgument);
  }
  print_notes(*line, used_command(app));
  const choral::Status status =
      choral::or_out_of_memory("the command cannot go on", [&] { return run_as_rank(command, used_command(app).get_name()); });
  return status.ok() ? 0 : fail(status);
}
