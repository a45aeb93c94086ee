// What each CPU level may use of the instruction set, under the names of compilers' target attributes, which kernels carry: a
// level is the machine's only if it has all that code for it was compiled with, because compilers use of it what they like. Found
// by CPUID, and by what the system saves for a process when it takes turns. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu_level.h"
#include "base/function_ref.h"

namespace choral {

// What the level asks for beyond the one that it is built on; nothing for kBase.
std::span<const std::string_view> features_of(CpuLevel level);

// What a CPU of x86 and its system say of themselves.
struct CpuReport {
  using Registers = std::array<uint32_t, 4>;  // eax, ebx, ecx, edx as CPUID sets them; zeros for a leaf that there is not
  Registers leaf1, leaf7, leaf7_1;            // the last is subleaf 1 of 7
  uint64_t saved_states;                      // the register XCR0; 0 where programs can't ask
  bool (*grants_amx)();                       // asked only where the tiles' state is saved
};
// False for a name that no level has.
bool cpu_has(std::string_view feature, const CpuReport& report);
// Of this machine, which has nothing if it is no x86.
bool cpu_has(std::string_view feature);

// Whether nothing is missing that the level asks for, and those below it.
bool has_level(CpuLevel level, FunctionRef<bool(std::string_view feature)> has);

}  // namespace choral
