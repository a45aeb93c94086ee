// A plug-in as a Platform: what its probe said, and how it is opened.
#pragma once

#include "platform/platform.h"
#include "platform/plugin/plugin_library.h"

namespace choral::platform {

struct PluginProbe {
  int device_count = 0;
  int score = 0;
  std::string device_name;
  std::string reason;  // why there is no device
};

// An error when the probe itself fails.
Result<PluginProbe> probe_plugin(const PluginLibrary& plugin);

// `kind` tells its memory from other devices'; 0 is the CPU's.
std::unique_ptr<Platform> make_plugin_platform(std::shared_ptr<const PluginLibrary> plugin, PluginProbe probe, uint8_t kind);

}  // namespace choral::platform
