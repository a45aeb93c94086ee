// What this CPU can do, as named sets of features that kernels are written for: of x86, and base for any other. A level has all
// that the one has that it is built on: avxvnni and avx512 are both built on avx2, and neither has the other; vnni is built on
// avx512, amx on vnni. Found once by CPUID (cpu_features.h has each level's list), capped by
// CHORAL_CPU_LEVEL=base|avx2|avxvnni|avx512|vnni|amx. Kernels are given the level in their Context, so element-wise
// (kernels/highway_level.h) and hand-written ones use the same.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral {

// A machine that has several uses the last, and a cap leaves those up to it. What a level's code may use is not said by this
// order but by includes().
enum class CpuLevel {
  kBase,     // any CPU; every kernel has a form for it, Highway's use SSE4 or NEON where the machine has it
  kAvx2,     // AVX2 + FMA + F16C + BMI2
  kAvxVnni,  // AVX2's + AVX-VNNI, its products of bytes on 256 bits: CPUs for clients, without AVX-512
  kAvx512,   // AVX2's + AVX-512 F/BW/CD/DQ/VL
  kVnni,     // + AVX512_VNNI
  kAmx,      // + AMX tile, int8 and bf16
};

constexpr CpuLevel built_on(CpuLevel level) {
  switch (level) {
    case CpuLevel::kBase:
    case CpuLevel::kAvx2: return CpuLevel::kBase;
    case CpuLevel::kAvxVnni:
    case CpuLevel::kAvx512: return CpuLevel::kAvx2;
    case CpuLevel::kVnni: return CpuLevel::kAvx512;
    case CpuLevel::kAmx: return CpuLevel::kVnni;
  }
  return CpuLevel::kBase;
}
// Whether code for `part` may run at `level`.
constexpr bool includes(CpuLevel level, CpuLevel part) {
  while (level > part) level = built_on(level);
  return level == part;
}

std::string_view cpu_level_name(CpuLevel level);
Result<CpuLevel> parse_cpu_level(std::string_view name);

bool machine_has(CpuLevel level);
CpuLevel machine_cpu_level();  // the last that the machine has, without the cap
CpuLevel
cpu_level();  // what is used: the last up to the cap that the machine has; an unknown cap ends the process with the valid names
std::vector<CpuLevel> usable_cpu_levels();  // kBase … cpu_level(), those that the machine has: what tests run through

}  // namespace choral
