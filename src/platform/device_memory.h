// What a device with a memory of its own says of it, and of a cache in it; the memory plan goes by that. Engine thread, before
// the model is loaded.
#pragma once

#include <optional>

#include "base/status.h"
#include "tensor/dtype.h"

namespace choral::platform {

class Session;

struct DeviceMemory {
  int64_t free_bytes = 0;  // now
  int64_t total_bytes = 0;
};

// Nothing where the host's memory is used, or where the device does not say.
Result<std::optional<DeviceMemory>> device_memory(const Session& session);
struct CacheHeads {
  DType dtype = DType::kF32;
  int64_t kv_heads = 0, key_dim = 0, value_dim = 0;
  bool values_in_keys = false;
};
// A model will have such a cache: a device that does not take it leaves the cache to the host, and a note says why.
void expect_cache(Session& session, const CacheHeads& heads);
// Whether Session::allocate_kv() gives the device's memory.
bool keeps_kv(const Session& session);

}  // namespace choral::platform
