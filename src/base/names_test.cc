#include <gtest/gtest.h>

#include <algorithm>
#include <random>
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

size_t plain_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

// Short names are compared bit by bit, long ones letter by letter: both as the table says.
TEST(NearestName, IsTheOneThatTheTableOfDistancesSays) {
  std::mt19937 random(7);
  const auto letters = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += static_cast<char>('a' + random() % 3);
    return out;
  };
  for (int round = 0; round < 400; ++round) {
    const std::string typed = letters(1 + random() % 80);
    std::vector<std::string> candidates;
    for (int i = 0; i < 6; ++i) {
      std::string changed = typed;
      for (size_t change = 0; change < 1 + random() % 5; ++change) {
        const size_t at = random() % (changed.size() + 1);
        if (const auto kind = random() % 4; kind == 0 || changed.size() < 2 || at + 1 >= changed.size()) {
          changed.insert(at, letters(1));
        } else if (kind == 1) {
          changed.erase(at, 1);
        } else if (kind == 2) {
          changed[at] = 'c';
        } else {
          std::swap(changed[at], changed[at + 1]);
        }
      }
      candidates.push_back(changed);
    }
    std::string best;
    size_t least = typed.size() + 1;
    for (const auto& candidate : candidates) {
      const size_t distance = plain_distance(typed, candidate);
      if (distance >= least || distance * 3 > std::max(typed.size(), candidate.size())) continue;
      least = distance;
      best = candidate;
    }
    EXPECT_EQ(nearest_name(typed, candidates), best) << typed;
  }
}

TEST(NearestName, TakesBoundedWorkHoweverManyThereAre) {
  NearestName of_many("adapter-5554567"), of_long(std::string(200, 'a'));
  for (int i = 0; i < 10'000; ++i) of_many.consider("adapter-" + std::to_string(1'000'000 + i));
  EXPECT_EQ(of_many.steps(), 150'000) << "one for each letter";
  for (int i = 0; i < 10'000; ++i) of_long.consider(std::string(200, 'b'));
  EXPECT_LE(of_long.steps(), NearestName::kMostSteps + 200 * 200);
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
