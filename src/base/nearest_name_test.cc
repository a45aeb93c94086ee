#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace choral {
namespace {

TEST(NearestName, FindsTyposAndNothingElse) {
  const std::vector<std::string> flags{"temperature", "top-k", "top-p", "threads"};
  EXPECT_EQ(nearest_name("temprature", flags), "temperature");
  EXPECT_EQ(nearest_name("thread", flags), "threads");
  EXPECT_EQ(nearest_name("banana", flags), "");
  EXPECT_EQ(nearest_name("", flags), "");
  EXPECT_EQ(nearest_name("threads", std::vector<std::string>{}), "");
}

TEST(NearestName, TakesTwoLettersSwappedForOneMistake) {
  EXPECT_EQ(nearest_name("prot", std::vector<std::string>{"root", "port"}), "port");
}

TEST(NearestName, AllowsAThirdOfTheLetters) {
  EXPECT_EQ(nearest_name("abcdeX", std::vector<std::string>{"abcdef"}), "abcdef");
  EXPECT_EQ(nearest_name("abcdXY", std::vector<std::string>{"abcdef"}), "abcdef");
  EXPECT_EQ(nearest_name("abcXYZ", std::vector<std::string>{"abcdef"}), "");
  EXPECT_EQ(nearest_name("abcXe", std::vector<std::string>{"abXXe", "abcde"}), "abXXe") << "of equals the first";
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

}  // namespace
}  // namespace choral
