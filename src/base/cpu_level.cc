#include "base/cpu_level.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/cpu_features.h"
#include "base/log.h"

namespace choral {
namespace {

constexpr std::array<std::string_view, 5> kNames{"base", "avx2", "avx512", "vnni", "amx"};

CpuLevel capped_level() {
  const CpuLevel machine = machine_cpu_level();
  CpuLevel used = machine;
  if (const char* cap = std::getenv("CHORAL_CPU_LEVEL"); cap != nullptr && *cap != '\0') {
    const auto wanted = parse_cpu_level(cap);
    if (!wanted.ok()) {
      say("choral: CHORAL_CPU_LEVEL: {}\n", wanted.status().message());
      std::exit(exit_code(wanted.status().code()));
    }
    used = std::min(machine, *wanted);
  }
  return used;
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) { return kNames.at(static_cast<size_t>(level)); }

Result<CpuLevel> parse_cpu_level(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CpuLevel>(i);
  }
  return invalid_argument("no CPU level is named '{}'; choose base, avx2, avx512, vnni or amx", name);
}

CpuLevel machine_cpu_level() {
  static const CpuLevel level = level_with([](std::string_view feature) { return cpu_has(feature); });
  return level;
}

CpuLevel cpu_level() {
  static const CpuLevel level = capped_level();
  return level;
}

std::vector<CpuLevel> usable_cpu_levels() {
  std::vector<CpuLevel> levels;
  for (int i = 0; i <= static_cast<int>(cpu_level()); ++i) levels.push_back(static_cast<CpuLevel>(i));
  return levels;
}

}  // namespace choral
