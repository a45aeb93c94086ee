#include "base/cpu_features.h"

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace choral {

#if defined(__x86_64__)

namespace {

// What the system must keep of a process's registers for the feature to work.
enum class State { kSse, kAvx, kAvx512, kAmx };
enum Register { kEax, kEbx, kEcx, kEdx };

struct Feature {
  std::string_view name;
  unsigned leaf, subleaf;
  Register in;
  int bit;
  State state;
};

constexpr std::array kFeatures{
    Feature{"sse2", 1, 0, kEdx, 26, State::kSse},          Feature{"ssse3", 1, 0, kEcx, 9, State::kSse},
    Feature{"sse4.1", 1, 0, kEcx, 19, State::kSse},        Feature{"sse4.2", 1, 0, kEcx, 20, State::kSse},
    Feature{"popcnt", 1, 0, kEcx, 23, State::kSse},        Feature{"pclmul", 1, 0, kEcx, 1, State::kSse},
    Feature{"aes", 1, 0, kEcx, 25, State::kSse},           Feature{"avx", 1, 0, kEcx, 28, State::kAvx},
    Feature{"avx2", 7, 0, kEbx, 5, State::kAvx},           Feature{"bmi", 7, 0, kEbx, 3, State::kSse},
    Feature{"bmi2", 7, 0, kEbx, 8, State::kSse},           Feature{"fma", 1, 0, kEcx, 12, State::kAvx},
    Feature{"f16c", 1, 0, kEcx, 29, State::kAvx},          Feature{"avx512f", 7, 0, kEbx, 16, State::kAvx512},
    Feature{"avx512bw", 7, 0, kEbx, 30, State::kAvx512},   Feature{"avx512cd", 7, 0, kEbx, 28, State::kAvx512},
    Feature{"avx512dq", 7, 0, kEbx, 17, State::kAvx512},   Feature{"avx512vl", 7, 0, kEbx, 31, State::kAvx512},
    Feature{"avx512vnni", 7, 0, kEcx, 11, State::kAvx512}, Feature{"amx-tile", 7, 0, kEdx, 24, State::kAmx},
    Feature{"amx-int8", 7, 0, kEdx, 25, State::kAmx},      Feature{"amx-bf16", 7, 0, kEdx, 22, State::kAmx},
};

// What the system saves: the register XCR0; nothing where programs cannot ask.
uint64_t saved_states() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kOsXsave = 1U << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux hands out the 8 KiB of AMX tile state only to processes that ask for it (arch_prctl ARCH_REQ_XCOMP_PERM).
bool kernel_grants_amx() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

bool is_saved(State state) {
  constexpr uint64_t kAvxBits = 0x6, kAvx512Bits = 0xe6, kAmxBits = 0x60000;
  const uint64_t saved = saved_states();
  switch (state) {
    case State::kSse: return true;  // by every system for x86-64
    case State::kAvx: return (saved & kAvxBits) == kAvxBits;
    case State::kAvx512: return (saved & kAvx512Bits) == kAvx512Bits;
    case State::kAmx: return (saved & kAmxBits) == kAmxBits && kernel_grants_amx();
  }
  return false;
}

}  // namespace

bool cpu_has(std::string_view feature) {
  const auto* const found = std::find_if(kFeatures.begin(), kFeatures.end(), [&](const Feature& f) { return f.name == feature; });
  if (found == kFeatures.end()) return false;
  std::array<unsigned, 4> registers{};
  auto& [eax, ebx, ecx, edx] = registers;
  if (__get_cpuid_count(found->leaf, found->subleaf, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (registers.at(found->in) >> found->bit & 1U) != 0 && is_saved(found->state);
}

#else

bool cpu_has(std::string_view) { return false; }

#endif

namespace {

using Names = std::span<const std::string_view>;
// Highway's target of the level asks for pclmul and aes too, avx2 of g++ for popcnt.
constexpr std::array<std::string_view, 13> kAvx2{"sse2", "ssse3", "sse4.1", "sse4.2", "popcnt", "pclmul", "aes",
                                                 "avx",  "avx2",  "bmi",    "bmi2",   "fma",    "f16c"};
constexpr std::array<std::string_view, 5> kAvx512{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"};
constexpr std::array<std::string_view, 1> kVnni{"avx512vnni"};
constexpr std::array<std::string_view, 3> kAmx{"amx-tile", "amx-int8", "amx-bf16"};
constexpr std::array<Names, 5> kOfLevel{Names(), kAvx2, kAvx512, kVnni, kAmx};

}  // namespace

Names features_of(CpuLevel level) { return kOfLevel.at(static_cast<size_t>(level)); }

CpuLevel level_with(FunctionRef<bool(std::string_view)> has) {
  CpuLevel level = CpuLevel::kBase;
  for (size_t next = 1; next < kOfLevel.size(); ++next) {
    if (!std::all_of(kOfLevel.at(next).begin(), kOfLevel.at(next).end(), has)) break;
    level = static_cast<CpuLevel>(next);
  }
  return level;
}

}  // namespace choral
