#include "base/size_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace choral {

std::string size_text(double bytes) {
  constexpr std::array<std::string_view, 5> kNames{"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kNames.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} bytes", bytes) : fmt::format("{:.1f} {}", bytes, kNames.at(unit));
}

}  // namespace choral
