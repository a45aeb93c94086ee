#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cpu_level.h"
#include "base/nearest_name.h"
#include "base/printable.h"
#include "base/sha256.h"

namespace choral {
namespace {

TEST(NearestName, FindsTyposAndNothingElse) {
  const std::vector<std::string> flags{"temperature", "top-k", "top-p", "threads"};
  EXPECT_EQ(nearest_name("temprature", flags), "temperature");
  EXPECT_EQ(nearest_name("thread", flags), "threads");
  EXPECT_EQ(nearest_name("prot", std::vector<std::string>{"root", "port"}), "port");  // two letters swapped are one mistake
  EXPECT_EQ(nearest_name("banana", flags), "");
}

TEST(NearestName, LooksAtNoMoreThanAName) {
  // The distance of two megabytes would take a trillion steps.
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), std::vector<std::string>{std::string(1 << 20, 'a'), "b"}), "");
  EXPECT_EQ(nearest_name("a", std::vector<std::string>{std::string(1 << 20, 'a')}), "");
}

TEST(TerminalLine, LeavesNothingThatDrivesATerminal) {
  EXPECT_EQ(terminal_line("a\tb\n  c"), "a\\x09b\\n  c");
  EXPECT_EQ(terminal_text("a\n  c\nd"), "a\n  c\\nd");
  EXPECT_EQ(terminal_line("\u009b31m \u202e \u2028 \u2066"), "\\u{009b}31m \\u{202e} \\u{2028} \\u{2066}");
  EXPECT_EQ(terminal_line("\xC0\xAF \xED\xA0\x80 \xF5 \xE2\x82"), "\\xc0\\xaf \\xed\\xa0\\x80 \\xf5 \\xe2\\x82");
  EXPECT_EQ(terminal_line("é 記 🎶 'quoted' \\"), "é 記 🎶 'quoted' \\");
}

TEST(Sha256, KnownAnswer) {
  const std::string text = "abc";
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(text)))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CpuLevel, NamesRoundTripAndLevelsAreOrdered) {
  for (const CpuLevel level : usable_cpu_levels()) EXPECT_EQ(*parse_cpu_level(cpu_level_name(level)), level);
  EXPECT_EQ(usable_cpu_levels().front(), CpuLevel::kBase);
  EXPECT_LE(cpu_level(), machine_cpu_level());
  EXPECT_NE(parse_cpu_level("avx1024").status().message().find("avx512"), std::string::npos);
}

}  // namespace
}  // namespace choral
