#include "base/cpu_features.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace choral {
namespace {

// What the system must keep of a process's registers for the feature to work.
enum class State { kSse, kAvx, kAvx512, kAmx };
enum Register { kEax, kEbx, kEcx, kEdx };

struct Feature {
  std::string_view name;
  CpuReport::Registers CpuReport::*leaf;
  Register in;
  int bit;
  State state;
};

constexpr std::array kFeatures{
    Feature{"sse2", &CpuReport::leaf1, kEdx, 26, State::kSse},
    Feature{"ssse3", &CpuReport::leaf1, kEcx, 9, State::kSse},
    Feature{"sse4.1", &CpuReport::leaf1, kEcx, 19, State::kSse},
    Feature{"sse4.2", &CpuReport::leaf1, kEcx, 20, State::kSse},
    Feature{"popcnt", &CpuReport::leaf1, kEcx, 23, State::kSse},
    Feature{"pclmul", &CpuReport::leaf1, kEcx, 1, State::kSse},
    Feature{"aes", &CpuReport::leaf1, kEcx, 25, State::kSse},
    Feature{"avx", &CpuReport::leaf1, kEcx, 28, State::kAvx},
    Feature{"avx2", &CpuReport::leaf7, kEbx, 5, State::kAvx},
    Feature{"bmi", &CpuReport::leaf7, kEbx, 3, State::kSse},
    Feature{"bmi2", &CpuReport::leaf7, kEbx, 8, State::kSse},
    Feature{"fma", &CpuReport::leaf1, kEcx, 12, State::kAvx},
    Feature{"f16c", &CpuReport::leaf1, kEcx, 29, State::kAvx},
    Feature{"avxvnni", &CpuReport::leaf7_1, kEax, 4, State::kAvx},
    Feature{"avx512f", &CpuReport::leaf7, kEbx, 16, State::kAvx512},
    Feature{"avx512bw", &CpuReport::leaf7, kEbx, 30, State::kAvx512},
    Feature{"avx512cd", &CpuReport::leaf7, kEbx, 28, State::kAvx512},
    Feature{"avx512dq", &CpuReport::leaf7, kEbx, 17, State::kAvx512},
    Feature{"avx512vl", &CpuReport::leaf7, kEbx, 31, State::kAvx512},
    Feature{"avx512vnni", &CpuReport::leaf7, kEcx, 11, State::kAvx512},
    Feature{"amx-tile", &CpuReport::leaf7, kEdx, 24, State::kAmx},
    Feature{"amx-int8", &CpuReport::leaf7, kEdx, 25, State::kAmx},
    Feature{"amx-bf16", &CpuReport::leaf7, kEdx, 22, State::kAmx},
};

bool is_saved(State state, const CpuReport& report) {
  constexpr uint64_t kAvxBits = 0x6, kAvx512Bits = 0xe6, kAmxBits = 0x60000;
  const uint64_t saved = report.saved_states;
  switch (state) {
    case State::kSse: return true;  // by every system for x86-64
    case State::kAvx: return (saved & kAvxBits) == kAvxBits;
    case State::kAvx512: return (saved & kAvx512Bits) == kAvx512Bits;
    case State::kAmx: return (saved & kAmxBits) == kAmxBits && report.grants_amx();
  }
  return false;
}

#if defined(__x86_64__)

CpuReport::Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuReport::Registers registers{};
  auto& [eax, ebx, ecx, edx] = registers;
  __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);  // leaves zeros for a leaf that there is not
  return registers;
}

uint64_t saved_states(const CpuReport::Registers& leaf1) {
  constexpr uint32_t kOsXsave = 1U << 27;
  if ((leaf1[kEcx] & kOsXsave) == 0) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux hands out the 8 KiB of AMX tile state only to processes that ask for it (arch_prctl ARCH_REQ_XCOMP_PERM).
bool kernel_grants_amx() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

CpuReport ask_this_cpu() {
  const auto leaf1 = cpuid(1, 0);
  return {leaf1, cpuid(7, 0), cpuid(7, 1), saved_states(leaf1), kernel_grants_amx};
}

#else

CpuReport ask_this_cpu() { return {}; }

#endif

}  // namespace

bool cpu_has(std::string_view feature, const CpuReport& report) {
  const auto* const found = std::find_if(kFeatures.begin(), kFeatures.end(), [&](const Feature& f) { return f.name == feature; });
  if (found == kFeatures.end()) return false;
  // Of a subleaf beyond the last, which subleaf 0 tells, nothing is promised.
  if (found->leaf == &CpuReport::leaf7_1 && report.leaf7[kEax] < 1) return false;
  return ((report.*found->leaf).at(found->in) >> found->bit & 1U) != 0 && is_saved(found->state, report);
}

bool cpu_has(std::string_view feature) {
  static const CpuReport report = ask_this_cpu();  // once: a virtual machine's host answers each question
  return cpu_has(feature, report);
}

namespace {

using Names = std::span<const std::string_view>;
// Highway's target of the level asks for pclmul and aes too, avx2 of g++ for popcnt.
constexpr std::array<std::string_view, 13> kAvx2{"sse2", "ssse3", "sse4.1", "sse4.2", "popcnt", "pclmul", "aes",
                                                 "avx",  "avx2",  "bmi",    "bmi2",   "fma",    "f16c"};
constexpr std::array<std::string_view, 1> kAvxVnni{"avxvnni"};
constexpr std::array<std::string_view, 5> kAvx512{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"};
constexpr std::array<std::string_view, 1> kVnni{"avx512vnni"};
constexpr std::array<std::string_view, 3> kAmx{"amx-tile", "amx-int8", "amx-bf16"};
constexpr std::array<Names, 6> kOfLevel{Names(), kAvx2, kAvxVnni, kAvx512, kVnni, kAmx};

}  // namespace

Names features_of(CpuLevel level) { return kOfLevel.at(static_cast<size_t>(level)); }

bool has_level(CpuLevel level, FunctionRef<bool(std::string_view)> has) {
  const Names own = features_of(level);
  return std::all_of(own.begin(), own.end(), has) && (level == CpuLevel::kBase || has_level(built_on(level), has));
}

}  // namespace choral
