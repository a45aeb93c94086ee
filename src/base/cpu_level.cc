#include "base/cpu_level.h"

#include <array>
#include <cstdlib>

#include "base/cpu_features.h"
#include "base/log.h"

namespace choral {
namespace {

constexpr std::array<std::string_view, 6> kNames{"base", "avx2", "avxvnni", "avx512", "vnni", "amx"};

CpuLevel best_up_to(CpuLevel cap) {
  CpuLevel level = cap;
  while (!machine_has(level)) level = static_cast<CpuLevel>(static_cast<int>(level) - 1);  // it has kBase
  return level;
}

CpuLevel capped_level() {
  const char* cap = std::getenv("CHORAL_CPU_LEVEL");
  if (cap == nullptr || *cap == '\0') return machine_cpu_level();
  const auto wanted = parse_cpu_level(cap);
  if (!wanted.ok()) {
    say("choral: CHORAL_CPU_LEVEL: {}\n", wanted.status().message());
    std::exit(exit_code(wanted.status().code()));
  }
  return best_up_to(*wanted);
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) { return kNames.at(static_cast<size_t>(level)); }

Result<CpuLevel> parse_cpu_level(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CpuLevel>(i);
  }
  return invalid_argument("no CPU level is named '{}'; choose base, avx2, avxvnni, avx512, vnni or amx", name);
}

bool machine_has(CpuLevel level) {
  return has_level(level, [](std::string_view feature) { return cpu_has(feature); });
}

CpuLevel machine_cpu_level() {
  static const CpuLevel level = best_up_to(CpuLevel::kAmx);
  return level;
}

CpuLevel cpu_level() {
  static const CpuLevel level = capped_level();
  return level;
}

std::vector<CpuLevel> usable_cpu_levels() {
  std::vector<CpuLevel> levels;
  for (int i = 0; i <= static_cast<int>(cpu_level()); ++i) {
    if (const auto level = static_cast<CpuLevel>(i); machine_has(level)) levels.push_back(level);
  }
  return levels;
}

}  // namespace choral
