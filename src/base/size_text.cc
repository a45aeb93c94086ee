#include "base/size_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace choral {

std::string size_text(int64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kNames.size(); ++unit) size /= 1024;
  return fmt::format("{:.{}f} {}", size, unit == 0 ? 0 : 1, kNames.at(unit));
}

}  // namespace choral
