// What a device with a memory of its own says of it; the memory plan goes by that. Engine thread, before the model is loaded.
#pragma once

#include <optional>

#include "base/status.h"

namespace choral::platform {

class Session;

struct DeviceMemory {
  int64_t free_bytes = 0;  // now
  int64_t total_bytes = 0;
};

// Nothing where the host's memory is used, or where the device does not say.
Result<std::optional<DeviceMemory>> device_memory(const Session& session);
// Whether Session::allocate_kv() gives the device's memory.
bool keeps_kv(const Session& session);

}  // namespace choral::platform
