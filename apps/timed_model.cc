#include "timed_model.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <utility>

namespace choral::apps {

void add_timed_model_flags(CLI::App& app, TimedModelFlags& flags) {
  add_model_flag(app, flags.engine);
  app.add_option("--synthetic", flags.synthetic,
                 fmt::format("random weights instead of MODEL: {}", fmt::join(tools::synthetic_names(), ", ")))
      ->type_name("NAME");
  app.add_option("--format", flags.format, "of the random weights: bf16, f16, f32, q8_0, q4_0, q4_1, q4_k, …")->type_name("TYPE");
}

Result<tools::StepTimerOptions> timed_model(const TimedModelFlags& flags) {
  tools::StepTimerOptions options;
  CHORAL_TRY(options.engine, engine_options(flags.engine));
  options.synthetic = flags.synthetic;
  options.synthetic_format = flags.format;
  if (options.engine.model.empty() && options.synthetic.empty()) {
    return invalid_argument("name a MODEL, or with --synthetic {} for random weights of that shape",
                            fmt::join(tools::synthetic_names(), ", "));
  }
  if (!options.engine.model.empty() && !options.synthetic.empty()) return invalid_argument("give either a MODEL or --synthetic");
  return options;
}

Result<std::unique_ptr<tools::StepTimer>> load_timed_model(tools::StepTimerOptions options, Progress& progress) {
  progress.update(options.synthetic.empty() ? "loading" : "making random weights", Progress::kUnknown);
  options.engine.on_progress = [&progress](const LoadProgress& p) {
    if (p.phase == "pack") progress.update("packing weights", p.fraction);
  };
  return tools::StepTimer::make(std::move(options));
}

}  // namespace choral::apps
