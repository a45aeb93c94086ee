// Copies into a device's memory from a thread beside the engine's, while steps run. What is written belongs to nobody yet: no
// operator reads it until finish() has returned and the engine's thread was told. Made and destroyed by the engine's thread, used
// by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace choral::platform {

class SideCopies {
 public:
  virtual ~SideCopies() = default;
  // Rows of the host's, which may be reused when this returns. An error is the device's.
  virtual Status copy(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t row_bytes,
                      int64_t rows) = 0;
  // Waits until all of it is there, for operators that are called from now on.
  virtual Status finish() = 0;
};

}  // namespace choral::platform
