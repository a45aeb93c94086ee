#include "base/cpu_level.h"

#include <hwy/targets.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/log.h"

namespace choral {
namespace {

constexpr std::array<std::string_view, 6> kNames{"base", "avx2", "avx512", "vnni", "bf16", "amx"};

// Linux hands out the 8 KiB of AMX tile state only to processes that ask for it (arch_prctl ARCH_REQ_XCOMP_PERM).
bool kernel_grants_amx() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

// g++ 12 and clang 14 know no __builtin_cpu_supports for AMX: CPUID leaf 7, EDX bits 22 (bf16), 24 (tile), 25 (int8).
bool cpu_has_amx() {
  unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
  __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  constexpr unsigned kWanted = (1u << 22) | (1u << 24) | (1u << 25);
  return (edx & kWanted) == kWanted;
}

// clang 14 does not know "f16c" either: CPUID leaf 1, ECX bit 29.
bool cpu_has_f16c() {
  unsigned eax = 1, ebx = 0, ecx = 0, edx = 0;
  __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  return (ecx >> 29 & 1u) != 0;
}

CpuLevel detect() {
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c())) return CpuLevel::kBase;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))) {
    return CpuLevel::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512vnni")) return CpuLevel::kAvx512;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuLevel::kVnni;
  return cpu_has_amx() && kernel_grants_amx() ? CpuLevel::kAmx : CpuLevel::kBf16;
}

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
  limit_highway_to(used);
  return used;
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) { return kNames.at(static_cast<size_t>(level)); }

Result<CpuLevel> parse_cpu_level(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CpuLevel>(i);
  }
  return invalid_argument("no CPU level is named '{}'; choose base, avx2, avx512, vnni, bf16 or amx", name);
}

CpuLevel machine_cpu_level() {
  static const CpuLevel level = detect();
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

void limit_highway_to(CpuLevel level) {
  int64_t disabled = 0;
  if (level < CpuLevel::kAvx512) disabled |= HWY_AVX3 | HWY_AVX3_DL;
  if (level < CpuLevel::kAvx2) disabled |= HWY_AVX2;
  hwy::DisableTargets(disabled);
}

}  // namespace choral
