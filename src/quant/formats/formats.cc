#include "quant/formats/formats.h"

#include <fmt/ranges.h>

namespace choral::quant {

Result<int64_t> checked_group_size(const io::ConfigMap& config, int64_t stored) {
  constexpr int64_t kBlock = 32, kMost = 1 << 20;
  if (stored == -1 || stored == 0) return 0;
  if (stored > 0 && stored <= kMost && stored % kBlock == 0) return stored;
  return unread_format(config.path_of("group_size"), fmt::format("{}", stored), "multiples of 32, and -1 for none");
}

Status unread_format(std::string_view where, std::string_view what, std::string_view known) {
  return unsupported(
      "{} is {}, which is not read; what is: {}. Use the float checkpoint, with --quantization {} if you like, or a "
      "GGUF file",
      where, what, known, fmt::join(in_flight_names(), " or "));
}

}  // namespace choral::quant
