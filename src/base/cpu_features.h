// What each CPU level may use of the instruction set, under the names of compilers' target attributes, which kernels carry: a
// level is the machine's only if it has all that code for it was compiled with, because compilers use of it what they like. Found
// by CPUID, and by what the system saves for a process when it takes turns. Any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/cpu_level.h"
#include "base/function_ref.h"

namespace choral {

// What the level asks for beyond the levels below it; nothing for kBase.
std::span<const std::string_view> features_of(CpuLevel level);

// Of this machine; false for a name that no level has.
bool cpu_has(std::string_view feature);

// The highest level of which, and below which, nothing is missing.
CpuLevel level_with(FunctionRef<bool(std::string_view feature)> has);

}  // namespace choral
