// `choral completion bash|zsh|fish`: the script that makes the shell complete this program's commands and flags.
#include <CLI/CLI.hpp>

#include "command.h"
#include "completion_scripts.h"
#include "output_file.h"

namespace choral::apps {

void add_completion(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("completion", "a script for the shell, which then completes commands and flags");
  struct Shell {
    const char* name;
    const char* what;
    std::string (*script)(std::span<const CompletedCommand>);
  };
  constexpr Shell kShells[] = {
      {"bash", "source <(choral completion bash)", bash_completion},
      {"zsh", "source <(choral completion zsh), behind compinit", zsh_completion},
      {"fish", "choral completion fish | source", fish_completion},
  };
  for (const Shell& shell : kShells) {
    sub->add_subcommand(shell.name, shell.what)->callback([&app, &command, script = shell.script] {
      command.run = [&app, script] { return print_out(script(completed_commands(app))); };
    });
  }
}

}  // namespace choral::apps
