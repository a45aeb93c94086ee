// Whether an adapter or a voice that was asked for may be used in steps.
#pragma once

#include <cstdint>

namespace choral::lora {

enum class Readiness : uint8_t {
  kReady,
  kComing,  // on its way to the device, which takes no answer of the caller's: it is asked for again, as if it never had been
};

}  // namespace choral::lora
