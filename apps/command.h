// The subcommands of `choral`. Each adds itself to the command line; when it is the one that was called, it puts its work into
// Command::run, which gives the exit code. Main thread only.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace choral::apps {

struct Command {
  std::function<Status()> run;
  // What the other processes do that mpirun started, of a command that divides its model over them; empty: it is started alone.
  std::function<Status()> follow;
};

void add_generate(CLI::App& app, Command& command);
void add_run_batch(CLI::App& app, Command& command);
void add_serve(CLI::App& app, Command& command);
void add_config(CLI::App& app, Command& command);
void add_chat(CLI::App& app, Command& command);
void add_pull(CLI::App& app, Command& command);
void add_tokenize(CLI::App& app, Command& command);
void add_bench(CLI::App& app, Command& command);
void add_load(CLI::App& app, Command& command);
void add_plan(CLI::App& app, Command& command);
void add_eval(CLI::App& app, Command& command);
void add_quantize(CLI::App& app, Command& command);
void add_adapter(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
// Of all commands that `app` has when it runs, itself included.
void add_completion(CLI::App& app, Command& command);

}  // namespace choral::apps
