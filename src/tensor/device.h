// Where a tensor's bytes live. The CPU is device 0 of kind "cpu"; plug-ins bring further kinds.
#pragma once

#include <cstdint>

namespace choral {

struct Device {
  uint8_t kind = 0;  // 0 = cpu; others are given by the platform registry
  uint8_t index = 0;
  bool host_accessible = true;
  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpuDevice{};

}  // namespace choral
