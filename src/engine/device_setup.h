// Opens a device from options, and gives the worker's configuration. The order is fixed, and notes record each step: choose the
// platform; let it change the configuration; find the worker class; apply its patches; open it. The device then declares its
// fused operators, its overrides and its own operators. Models are built after that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "engine/model_loader.h"
#include "platform/platform_choice.h"

namespace choral::engine {

struct DeviceSetup {
  std::shared_ptr<const platform::Platform> platform;
  std::unique_ptr<platform::Session> session;
  ModelForms forms;
  std::vector<std::string> notes;
};

// Opens the device of `options` for `pool`, which outlives it. What the platform decides is written to `options`. A plug-in that
// was chosen and not named, and can't be opened, gives way to the CPU with a note, unless options.require_device. `place`: as
// choose_platform()'s.
Result<DeviceSetup> set_up_device(EngineOptions& options, const std::string& architecture, ThreadPool& pool, int place = 0);

}  // namespace choral::engine
