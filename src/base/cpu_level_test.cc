#include "base/cpu_level.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "base/cpu_features.h"

namespace choral {
namespace {

using Names = std::set<std::string, std::less<>>;

constexpr std::array kLevels{CpuLevel::kBase,   CpuLevel::kAvx2, CpuLevel::kAvxVnni,
                             CpuLevel::kAvx512, CpuLevel::kVnni, CpuLevel::kAmx};

Names features_up_to(CpuLevel level) {
  Names names;
  for (const CpuLevel part : kLevels) {
    if (includes(level, part)) names.insert(features_of(part).begin(), features_of(part).end());
  }
  return names;
}

Names words_of(const std::string& list) {
  Names words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.insert(word);
  return words;
}

void expect_part_of(const Names& asked, const Names& has, const std::string& where) {
  for (const auto& name : asked)
    EXPECT_TRUE(has.contains(name)) << where << " uses " << name << ", which its level does not ask for";
}

TEST(CpuLevel, NamesRoundTripAndOthersAreRefusedWithTheList) {
  for (const CpuLevel level : kLevels) EXPECT_EQ(*parse_cpu_level(cpu_level_name(level)), level);
  EXPECT_NE(parse_cpu_level("avx1024").status().message().find("avx512"), std::string::npos);
}

TEST(CpuLevel, IncludesWhatItIsBuiltOn) {
  for (const CpuLevel level : kLevels) {
    EXPECT_TRUE(includes(level, level));
    EXPECT_TRUE(includes(level, CpuLevel::kBase));
    EXPECT_EQ(includes(level, CpuLevel::kAvx2), level != CpuLevel::kBase);
    EXPECT_EQ(includes(level, CpuLevel::kAvxVnni), level == CpuLevel::kAvxVnni) << "no AVX-512 includes it";
    EXPECT_EQ(includes(level, CpuLevel::kAvx512), level >= CpuLevel::kAvx512);
    EXPECT_EQ(includes(level, CpuLevel::kVnni), level >= CpuLevel::kVnni);
    EXPECT_EQ(includes(level, CpuLevel::kAmx), level == CpuLevel::kAmx);
  }
}

TEST(CpuLevel, IsTheMachinesAtMost) {
  EXPECT_LE(cpu_level(), machine_cpu_level());
  EXPECT_EQ(usable_cpu_levels().front(), CpuLevel::kBase);
  EXPECT_EQ(usable_cpu_levels().back(), cpu_level());
  for (const CpuLevel level : usable_cpu_levels()) EXPECT_TRUE(machine_has(level));
}

// Of each level the features, and of those that it includes.
TEST(CpuLevel, NeedsEveryFeatureOfItselfAndOfThoseBelow) {
  EXPECT_TRUE(has_level(CpuLevel::kBase, [](std::string_view) { return false; }));
  for (const CpuLevel level : kLevels) {
    const Names needed = features_up_to(level);
    EXPECT_TRUE(has_level(level, [&](std::string_view feature) { return needed.contains(feature); }));
    for (const auto& missing : needed)
      EXPECT_FALSE(has_level(level, [&](std::string_view feature) { return feature != missing; })) << missing;
  }
}

std::vector<std::string_view> levels_of(const CpuReport& report) {
  std::vector<std::string_view> names;
  for (const CpuLevel level : kLevels) {
    if (has_level(level, [&](std::string_view feature) { return cpu_has(feature, report); }))
      names.push_back(cpu_level_name(level));
  }
  return names;
}

TEST(CpuLevel, IsFoundInWhatCpusTell) {
  using Levels = std::vector<std::string_view>;
  constexpr uint64_t kAvxSaved = 0x7, kAvx512Saved = 0xE7, kTilesSaved = 0x600E7;
  constexpr uint32_t kEdx1 = 0xBFEBFBFF;
  const auto yes = [] { return true; };
  const CpuReport haswell{{0, 0, 0x7FFAFBFF, kEdx1}, {0, 0x000027AB, 0, 0}, {}, kAvxSaved, yes};
  const CpuReport alder_lake{{0, 0, 0x7FFAFBFF, kEdx1}, {1, 0x239C27EB, 0x98C007AC, 0xFC18C410}, {0x00000C10}, kAvxSaved, yes};
  const CpuReport zen4{{0, 0, 0x7ED8320B, kEdx1}, {1, 0xF1BF97A9, 0x00405FCE, 0x10000010}, {0x00000020}, kAvx512Saved, yes};
  const CpuReport sapphire_rapids{
      {0, 0, 0x7FFEFBFF, kEdx1}, {1, 0xF3BFB7EF, 0xFB417FFE, 0xFFDD4432}, {0x00001C30}, kTilesSaved, yes};
  EXPECT_EQ(levels_of(haswell), (Levels{"base", "avx2"}));
  EXPECT_EQ(levels_of(alder_lake), (Levels{"base", "avx2", "avxvnni"}));
  EXPECT_EQ(levels_of(zen4), (Levels{"base", "avx2", "avx512", "vnni"}));
  EXPECT_EQ(levels_of(sapphire_rapids), (Levels{"base", "avx2", "avxvnni", "avx512", "vnni", "amx"}));
  EXPECT_EQ(levels_of({}), (Levels{"base"}));

  const auto but = [](CpuReport report, auto change) {
    change(report);
    return levels_of(report);
  };
  EXPECT_EQ(but(alder_lake, [](CpuReport& r) { r.leaf7[0] = 0; }), (Levels{"base", "avx2"})) << "it has no such subleaf";
  EXPECT_EQ(but(alder_lake, [](CpuReport& r) { r.saved_states = 0x3; }), (Levels{"base"})) << "the system saves no AVX";
  EXPECT_EQ(but(alder_lake, [](CpuReport& r) { r.leaf1[2] &= ~(1U << 29); }), (Levels{"base"})) << "no F16C";
  EXPECT_EQ(but(alder_lake, [](CpuReport& r) { r.leaf7[1] &= ~(1U << 8); }), (Levels{"base"})) << "no BMI2";
  EXPECT_EQ(but(zen4, [](CpuReport& r) { r.saved_states = 0x7; }), (Levels{"base", "avx2"})) << "the system saves no AVX-512";
  EXPECT_EQ(but(sapphire_rapids, [](CpuReport& r) { r.grants_amx = [] { return false; }; }),
            (Levels{"base", "avx2", "avxvnni", "avx512", "vnni"}));
}

#if defined(__x86_64__)
// The compiler's library knows most of them by another way.
TEST(CpuLevel, FeaturesAreThoseTheCompilerFinds) {
  __builtin_cpu_init();
#define CHORAL_SAME(name) EXPECT_EQ(cpu_has(name), __builtin_cpu_supports(name) != 0) << name
  CHORAL_SAME("sse2");
  CHORAL_SAME("ssse3");
  CHORAL_SAME("sse4.1");
  CHORAL_SAME("sse4.2");
  CHORAL_SAME("popcnt");
  CHORAL_SAME("pclmul");
  CHORAL_SAME("aes");
  CHORAL_SAME("avx");
  CHORAL_SAME("avx2");
  CHORAL_SAME("bmi");
  CHORAL_SAME("bmi2");
  CHORAL_SAME("fma");
  CHORAL_SAME("avx512f");
  CHORAL_SAME("avx512bw");
  CHORAL_SAME("avx512cd");
  CHORAL_SAME("avx512dq");
  CHORAL_SAME("avx512vl");
  CHORAL_SAME("avx512vnni");
#undef CHORAL_SAME
  EXPECT_FALSE(cpu_has("avx1024"));
}

TEST(CpuLevel, AsksForWhatHighwaysTargetsUse) {
  expect_part_of(words_of(HWY_TARGET_STR_AVX2), features_up_to(CpuLevel::kAvx2), "Highway");
  expect_part_of(words_of(HWY_TARGET_STR_AVX3), features_up_to(CpuLevel::kAvx512), "Highway");
}
#endif

// A hand-written kernel's file says its level in its name; loops of each level are in one. Tests look for themselves.
TEST(CpuLevel, AsksForWhatKernelsAreCompiledFor) {
  const std::filesystem::path kernels = std::filesystem::path(CHORAL_TEST_DATA) / "../../src/kernels";
  const std::regex target("target\\(\"([^\"]*)\"\\)");
  Names all;
  for (const CpuLevel level : kLevels) all.insert(features_of(level).begin(), features_of(level).end());
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kernels)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".cc" || name.ends_with("_bench") || name.ends_with("_test")) continue;
    const auto names = [&](const char* part) { return name.find(part) != name.npos; };
    const CpuLevel level = names("_amx")       ? CpuLevel::kAmx
                           : names("_vnni")    ? CpuLevel::kVnni
                           : names("_avx512")  ? CpuLevel::kAvx512
                           : names("_avxvnni") ? CpuLevel::kAvxVnni
                                               : CpuLevel::kAvx2;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator at(source.begin(), source.end(), target), end; at != end; ++at, ++found) {
      expect_part_of(words_of((*at)[1]), name == "peak_loops" ? all : features_up_to(level), entry.path().string());
    }
  }
  EXPECT_GT(found, 10) << "the kernels' sources were not found";
}

}  // namespace
}  // namespace choral
