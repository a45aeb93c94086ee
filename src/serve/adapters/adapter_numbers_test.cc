#include "serve/adapters/adapter_numbers.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using Names = std::vector<std::string>;

TEST(AdapterNumbers, EachNameHasOneAndKeepsIt) {
  AdapterNumbers numbers(nullptr);
  ASSERT_TRUE(numbers.read().ok());
  numbers.add(Names{"sql", "base-2"});
  numbers.add(Names{"a", "sql", "z"});
  EXPECT_EQ(numbers.number_of("sql"), 0);
  EXPECT_EQ(numbers.number_of("base-2"), 1);
  EXPECT_EQ(numbers.number_of("a"), 2);
  EXPECT_EQ(numbers.number_of("nobody"), std::nullopt);
  EXPECT_EQ(numbers.name_of(3), "z");
  EXPECT_EQ(numbers.name_of(4), std::nullopt);
  EXPECT_EQ(numbers.name_of(-1), std::nullopt);
}

TEST(AdapterNumbers, TheyAreThereAfterARestart) {
  const testing::TempDir folder;
  for (int start = 0; start < 3; ++start) {
    auto registered = RegisteredAdapters::open(folder.path());
    ASSERT_TRUE(registered.ok());
    AdapterNumbers numbers(registered->get());
    ASSERT_TRUE(numbers.read().ok());
    if (start == 0) numbers.add(Names{"b", "c"});
    numbers.add(Names{"a", "b", "c"});
    EXPECT_EQ(numbers.number_of("b"), 0);
    EXPECT_EQ(numbers.number_of("a"), 2);
    EXPECT_EQ(numbers.name_of(1), "c");
  }
}

}  // namespace
}  // namespace choral::serve
