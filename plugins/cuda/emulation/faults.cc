#include "faults.h"

#include <algorithm>
#include <cstdlib>

namespace cuda_emulation {

Faults Faults::from_environment() { return from(std::getenv("CHORAL_CUDA_EMULATION")); }

Faults Faults::from(const char* text) {
  Faults faults;
  std::string rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size()), middle = rest.find('=');
    const std::string key = rest.substr(0, middle);
    const std::string value = middle < end ? rest.substr(middle + 1, end - middle - 1) : "";
    const int64_t number = std::strtoll(value.c_str(), nullptr, 10);
    if (key == "driver") faults.driver = static_cast<int>(number);
    if (key == "devices") faults.devices = static_cast<int>(number);
    if (key == "capability") faults.capability = static_cast<int>(number);
    if (key == "pools") faults.pools = static_cast<int>(number);
    if (key == "wgmma") faults.wgmma = static_cast<int>(number);
    if (key == "memory_mib") faults.memory_mib = number;
    if (key == "fail") faults.fail = value;
    if (key == "at") faults.at = number;
    if (key == "with") faults.with = static_cast<int>(number);
    rest.erase(0, end + 1);
  }
  return faults;
}

}  // namespace cuda_emulation
