// A named, listed change of one entry of a registry, made when a worker starts and undone when it stops.
#pragma once

#include <string>

namespace choral::platform {

struct Patch {
  std::string name;
  std::string registry;  // "op", "custom_op", "fuse"
  std::string key;
  std::string value;
  std::string reason;
};

}  // namespace choral::platform
