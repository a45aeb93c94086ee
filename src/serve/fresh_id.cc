#include "serve/fresh_id.h"

#include <fmt/format.h>

#include <random>

namespace choral::serve {

std::string fresh_id(std::string_view prefix) {
  std::random_device device;
  std::string id(prefix);
  for (int i = 0; i < 6; ++i) id += fmt::format("{:08x}", device());
  return id;
}

}  // namespace choral::serve
