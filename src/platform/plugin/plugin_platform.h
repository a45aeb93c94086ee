// A plug-in as a Platform: what its probe said, and how it is opened.
#pragma once

#include "platform/platform.h"
#include "platform/plugin/plugin_library.h"

namespace choral::platform {

struct PluginProbe {
  int device_count = 0;
  int score = 0;
  std::string device_name;
  uint64_t memory_bytes = 0;     // of a device; 0: it did not say
  bool host_accessible = false;  // while nothing is queued
  std::string reason;            // why there is no device
};

// An error when the probe itself fails.
Result<PluginProbe> probe_plugin(const PluginLibrary& plugin);

// Of its devices, by number. `kind` tells its memory from other plug-ins'; 0 is the CPU's.
std::vector<std::shared_ptr<const Platform>> make_plugin_platforms(const std::shared_ptr<const PluginLibrary>& plugin,
                                                                   const PluginProbe& probe, uint8_t kind);

}  // namespace choral::platform
