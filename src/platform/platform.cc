#include "platform/platform.h"

namespace choral::platform {

Result<const Platform*> resolve_platform(std::string_view device) {
  if (device == "auto" || device == "cpu") return &cpu_platform();
  return invalid_argument("no device is named '{}'; this build has: cpu", device);
}

}  // namespace choral::platform
