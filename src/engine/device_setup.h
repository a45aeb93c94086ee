// From options to an open device with its worker's configuration, in a fixed order that its notes tell: the platform is chosen;
// it may change the configuration; the worker class is found; its patches are applied; it opens, and declares its fused
// operators, its overrides, its own operators. Models are built after that.
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
// was chosen and not named, and can't be opened, gives way to the CPU with a note, unless options.require_device.
Result<DeviceSetup> set_up_device(EngineOptions& options, const std::string& architecture, ThreadPool& pool);

}  // namespace choral::engine
