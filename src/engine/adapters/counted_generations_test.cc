#include "engine/adapters/counted_generations.h"

#include <gtest/gtest.h>

#include <limits>

namespace choral::engine {
namespace {

int number(CountedGenerations& generations, const std::string& name, const std::string& digest) {
  const auto found = generations.number_of(name, digest);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? *found : -1;
}

TEST(CountedGenerations, ANameCountsItsContentsAndNoNumberComesTwice) {
  CountedGenerations generations;
  EXPECT_EQ(number(generations, "a", "x"), 1);
  EXPECT_EQ(number(generations, "a", "x"), 1) << "the same content";
  EXPECT_EQ(number(generations, "a", "y"), 2);
  EXPECT_EQ(number(generations, "a", "x"), 3) << "1 was followed by another";
  EXPECT_EQ(number(generations, "b", "x"), 1) << "names count apart";
}

TEST(CountedGenerations, AFloorIsBelowAllNumbers) {
  CountedGenerations generations(1000);
  EXPECT_EQ(number(generations, "a", "x"), 1001);
  EXPECT_EQ(number(generations, "b", "x"), 1001);
}

TEST(CountedGenerations, WhatIsForgottenIsNotGivenAgain) {
  CountedGenerations generations(0, 2);
  for (const char* digest : {"1", "2", "3"}) number(generations, "a", digest);
  number(generations, "b", "1");
  EXPECT_EQ(number(generations, "c", "1"), 4);
  EXPECT_EQ(number(generations, "a", "4"), 4);
}

TEST(CountedGenerations, WhoCountedBeforeIsBelievedOnce) {
  CountedGenerations generations;
  generations.go_on_from("a", 4, "x");
  EXPECT_EQ(number(generations, "a", "x"), 4);
  EXPECT_EQ(number(generations, "a", "y"), 5);
  generations.go_on_from("a", 2, "x");
  EXPECT_EQ(number(generations, "a", "y"), 5);
}

TEST(CountedGenerations, NumbersEnd) {
  CountedGenerations generations(std::numeric_limits<int>::max() - 1);
  EXPECT_EQ(number(generations, "a", "x"), std::numeric_limits<int>::max());
  EXPECT_EQ(generations.number_of("a", "y").status().code(), Code::kResourceExhausted);
  EXPECT_EQ(number(generations, "a", "x"), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace choral::engine
