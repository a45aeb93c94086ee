#include "serve/service/model_names.h"

#include <gtest/gtest.h>

#include <vector>

namespace choral::serve {
namespace {

const std::vector<std::string> kBases{"smol", "org/smol-135m"};

TEST(ModelNames, TheBaseGoesByItsNames) {
  for (const char* name : {"", "base", "smol", "org/smol-135m"}) EXPECT_EQ(adapter_named(name, kBases), "") << name;
}

TEST(ModelNames, AnAdapterGoesByItsNameWithAndWithoutABase) {
  for (const char* name : {"sql", "base:sql", "base::sql", "smol:sql", "smol::sql", "org/smol-135m:sql"})
    EXPECT_EQ(adapter_named(name, kBases), "sql") << name;
}

TEST(ModelNames, WhatOnlyLooksLikeABaseIsAnAdaptersName) {
  for (const char* name : {"smol:", "smollm", "base:", "team/sql", "other:sql"}) EXPECT_EQ(adapter_named(name, kBases), name);
}

TEST(ModelNames, BaseLeavesNothingOpen) {
  for (const char* name : {"", "smol", "org/smol-135m"}) EXPECT_TRUE(leaves_adapter_open(name, kBases)) << name;
  for (const char* name : {"base", "sql", "smol:sql"}) EXPECT_FALSE(leaves_adapter_open(name, kBases)) << name;
  EXPECT_FALSE(leaves_adapter_open("base", std::vector<std::string>{"base"}));
}

}  // namespace
}  // namespace choral::serve
