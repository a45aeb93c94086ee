// `choral pull`: fetches a model or an adapter into the local Hugging Face cache, where `org/name` is looked up.
#include <CLI/CLI.hpp>

#include "base/printable.h"
#include "base/size_text.h"
#include "command.h"
#include "output_file.h"
#include "progress.h"
#include "tools/hub_pull.h"

namespace choral::apps {
namespace {

struct PullFlags {
  std::string name;
  std::string revision;
  std::vector<std::string> files;
  bool quiet = false;
};

Status run(const PullFlags& flags) {
  if (flags.name.empty()) return invalid_argument("no name was given: choral pull org/name");
  CHORAL_TRY(auto options, tools::hub_options_of_environment());
  options.name = flags.revision.empty() ? flags.name : flags.name + "@" + flags.revision;
  options.files = flags.files;
  Progress progress(flags.quiet);
  options.on_progress = [&progress](const tools::HubProgress& p) {
    const double share =
        p.all_bytes > 0 ? static_cast<double>(p.done_bytes) / static_cast<double>(p.all_bytes) : Progress::kUnknown;
    const std::string of = p.all_bytes > 0 ? fmt::format(", {} of {}", size_text(p.done_bytes), size_text(p.all_bytes)) : "";
    progress.update(terminal_line(p.doing) + of, share);
  };
  CHORAL_TRY(const auto pulled, tools::pull_from_hub(options));
  progress.finish(
      fmt::format("{}: {} file{}, {}{}", options.name, pulled.files, pulled.files == 1 ? "" : "s", size_text(pulled.all_bytes),
                  pulled.fetched_bytes == 0 ? ", all there already"
                                            : fmt::format(", of them {} fetched now", size_text(pulled.fetched_bytes))));
  return print_out(pulled.path.string() + "\n");
}

}  // namespace

void add_pull(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("pull", "fetch a model or an adapter into the local Hugging Face cache");
  const auto flags = std::make_shared<PullFlags>();
  sub->add_option("NAME", flags->name, "org/name, or org/name@revision")->type_name("");
  sub->add_option("--revision", flags->revision, "a branch, a tag or a commit (main)")->type_name("NAME");
  sub->add_option("--file", flags->files,
                  "only this file of the repository, or the one GGUF file with this in its name, e.g. Q4_K_M; may be given again")
      ->type_name("NAME");
  sub->add_flag("-q,--quiet", flags->quiet, "no progress");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
