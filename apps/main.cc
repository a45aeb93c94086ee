// The program `choral`: finds the subcommand, and turns an error into a message and an exit code.
#include <CLI/CLI.hpp>
#include <csignal>
#include <sstream>

#include "base/log.h"
#include "base/nearest_name.h"
#include "base/out_of_memory.h"
#include "choral/llm.h"
#include "command.h"
#include "output_file.h"
#include "standard_files.h"

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

// The first word that nobody took, with the nearest one that exists.
choral::Status unknown_word(const CLI::App& app) {
  const CLI::App* used = &app;
  while (!used->get_subcommands().empty()) used = used->get_subcommands().front();
  const auto words = app.remaining(true);
  const auto flag = std::find_if(words.begin(), words.end(), [](const auto& w) { return w.size() > 1 && w.starts_with('-'); });
  std::string typed = flag != words.end() ? *flag : words.empty() ? "" : words.front();
  typed = typed.substr(0, typed.find('='));
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
  std::string command = used->get_name();
  for (const auto* outer = used->get_parent(); outer != nullptr; outer = outer->get_parent()) {
    command = outer->get_name() + " " + command;
  }
  if (typed.starts_with('-'))
    return choral::invalid_argument("{} has no flag {}{} ({} --help lists them)", command, typed, hint, command);
  if (!commands.empty())
    return choral::invalid_argument("{} has no command '{}'{} ({} --help lists them)", command, typed, hint, command);
  return choral::invalid_argument("{}: what is '{}'? Texts with spaces need quotes ({} --help)", command, typed, command);
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
  app.set_version_flag("--version", "choral " + std::string(choral::version()));
  app.footer(kFooter);
  app.get_formatter()->column_width(44);
  choral::apps::Command command;
  choral::apps::add_generate(app, command);
  choral::apps::add_serve(app, command);
  choral::apps::add_config(app, command);
  choral::apps::add_chat(app, command);
  choral::apps::add_tokenize(app, command);
  choral::apps::add_bench(app, command);
  choral::apps::add_load(app, command);
  choral::apps::add_eval(app, command);
  choral::apps::add_quantize(app, command);
  choral::apps::add_adapter(app, command);
  choral::apps::add_doctor(app, command);
  choral::apps::add_completion(app, command);
  read_numbers_as_decimals(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    return fail(unknown_word(app));
  } catch (const CLI::Success& wanted) {
    return print_wanted(app, wanted);
  } catch (const CLI::ParseError& error) {
    return fail(choral::invalid_argument("{} (choral --help)", error.what()));
  }
  if (!command.run) {
    choral::say("{}", app.get_subcommands().empty() ? app.help() : app.get_subcommands().front()->help());
    return choral::exit_code(choral::Code::kInvalidArgument);
  }
  const choral::Status status = choral::or_out_of_memory("the command cannot go on", command.run);
  return status.ok() ? 0 : fail(status);
}
