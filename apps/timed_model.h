// The model whose steps `bench` and `plan` time: one of files, or random weights of a well-known shape. Main thread only.
#pragma once

#include <memory>
#include <string>

#include "engine_flags.h"
#include "progress.h"
#include "tools/step_timer.h"

namespace choral::apps {

struct TimedModelFlags {
  EngineFlags engine;
  std::string synthetic;
  std::string format = "bf16";
};

void add_timed_model_flags(CLI::App& app, TimedModelFlags& flags);  // MODEL, --synthetic, --format

// What the flags mean; an error where they name no model, or two.
Result<tools::StepTimerOptions> timed_model(const TimedModelFlags& flags);
Result<std::unique_ptr<tools::StepTimer>> load_timed_model(tools::StepTimerOptions options, Progress& progress);

}  // namespace choral::apps
