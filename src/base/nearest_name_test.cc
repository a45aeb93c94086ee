#include "base/nearest_name.h"

#include <gtest/gtest.h>

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

TEST(NearestName, LooksAtNoMoreThanAName) {
  // The distance of two megabytes would take a trillion steps.
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), std::vector<std::string>{std::string(1 << 20, 'a'), "b"}), "");
  EXPECT_EQ(nearest_name("a", std::vector<std::string>{std::string(1 << 20, 'a')}), "");
}

}  // namespace
}  // namespace choral
