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

constexpr std::array kLevels{CpuLevel::kBase, CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kVnni, CpuLevel::kAmx};

Names features_up_to(CpuLevel level) {
  Names names;
  for (const CpuLevel below : kLevels) {
    if (below <= level) names.insert(features_of(below).begin(), features_of(below).end());
  }
  return names;
}

Names words_of(const std::string& list) {
  Names words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.insert(word);
  return words;
}

void expect_part_of(const Names& asked, CpuLevel level, const std::string& where) {
  const Names has = features_up_to(level);
  for (const auto& name : asked)
    EXPECT_TRUE(has.contains(name)) << where << " uses " << name << ", which its level does not ask for";
}

TEST(CpuLevel, NamesRoundTripAndOthersAreRefusedWithTheList) {
  for (const CpuLevel level : kLevels) EXPECT_EQ(*parse_cpu_level(cpu_level_name(level)), level);
  EXPECT_NE(parse_cpu_level("avx1024").status().message().find("avx512"), std::string::npos);
}

TEST(CpuLevel, IsTheMachinesAtMost) {
  EXPECT_LE(cpu_level(), machine_cpu_level());
  EXPECT_EQ(usable_cpu_levels().front(), CpuLevel::kBase);
  EXPECT_EQ(usable_cpu_levels().back(), cpu_level());
}

TEST(CpuLevel, NeedsEveryFeatureOfItselfAndOfThoseBelow) {
  EXPECT_EQ(level_with([](std::string_view) { return true; }), CpuLevel::kAmx);
  EXPECT_EQ(level_with([](std::string_view) { return false; }), CpuLevel::kBase);
  for (size_t level = 1; level < kLevels.size(); ++level) {
    for (const auto missing : features_of(kLevels.at(level))) {
      EXPECT_EQ(level_with([&](std::string_view feature) { return feature != missing; }), kLevels.at(level - 1)) << missing;
    }
  }
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
  expect_part_of(words_of(HWY_TARGET_STR_AVX2), CpuLevel::kAvx2, "Highway");
  expect_part_of(words_of(HWY_TARGET_STR_AVX3), CpuLevel::kAvx512, "Highway");
}
#endif

// A hand-written kernel's file says its level in its name.
TEST(CpuLevel, AsksForWhatKernelsAreCompiledFor) {
  const std::filesystem::path kernels = std::filesystem::path(CHORAL_TEST_DATA) / "../../src/kernels";
  const std::regex target("target\\(\"([^\"]*)\"\\)");
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kernels)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".cc" || name.ends_with("_bench")) continue;
    const auto names = [&](const char* part) { return name.find(part) != name.npos; };
    const CpuLevel level = names("_amx") || name == "peak_loops" ? CpuLevel::kAmx
                           : names("_vnni")                      ? CpuLevel::kVnni
                           : names("_avx512")                    ? CpuLevel::kAvx512
                                                                 : CpuLevel::kAvx2;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator at(source.begin(), source.end(), target), end; at != end; ++at, ++found) {
      expect_part_of(words_of((*at)[1]), level, entry.path().string());
    }
  }
  EXPECT_GT(found, 10) << "the kernels' sources were not found";
}

}  // namespace
}  // namespace choral
