// What this CPU can do, in steps that kernels are written for: of x86, and base for any other. Found once by CPUID
// (cpu_features.h has each level's list), capped by CHORAL_CPU_LEVEL=base|avx2|avx512|vnni|amx. Each level includes the ones
// before it. Kernels are given the level in their Context, so element-wise (kernels/highway_level.h) and hand-written ones use
// the same.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral {

enum class CpuLevel {
  kBase,    // any CPU; every kernel has a form for it, Highway's use SSE4 or NEON where the machine has it
  kAvx2,    // AVX2 + FMA + F16C + BMI2
  kAvx512,  // AVX-512 F/BW/CD/DQ/VL
  kVnni,    // + AVX512_VNNI
  kAmx,     // + AMX tile, int8 and bf16
};

std::string_view cpu_level_name(CpuLevel level);
Result<CpuLevel> parse_cpu_level(std::string_view name);

CpuLevel machine_cpu_level();  // what the machine has, without the cap
CpuLevel cpu_level();  // what is used: the machine's level under the cap; an unknown cap ends the process with the valid names
std::vector<CpuLevel> usable_cpu_levels();  // kBase … cpu_level(): what tests run through

}  // namespace choral
