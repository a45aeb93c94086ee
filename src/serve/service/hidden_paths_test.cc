#include "serve/service/hidden_paths.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

HiddenPaths hidden(const std::vector<std::string>& paths) {
  auto adapters = std::make_shared<AdapterNameList>();
  for (const auto& path : paths) adapters->push_back(std::make_shared<AdapterName>(AdapterName{.name = "x", .path = path}));
  return HiddenPaths(adapters);
}

TEST(HiddenPaths, TheLongestThatBeginsSomewhereIsHidden) {
  const auto paths = hidden({"/a", "/a/b", "/a/b c/d", "/a/bb", "loras/x", "", "/"});
  EXPECT_EQ(paths.hide("(/a/b c/d/weights)", "#"), "(#/weights)");
  EXPECT_EQ(paths.hide("/a/b c/e", "#"), "# c/e");
  EXPECT_EQ(paths.hide("/a/bbb", "#"), "#b");
  EXPECT_EQ(paths.hide("/a/c", "#"), "#/c");
  EXPECT_EQ(paths.hide("/b", "#"), "/b");
  EXPECT_EQ(paths.hide("of loras/x and loras/y", "#"), "of # and loras/y");
  EXPECT_EQ(paths.hide("", "#"), "");
  EXPECT_EQ(HiddenPaths().hide("/a", "#"), "/a");
}

TEST(HiddenPaths, WhatOnlySharesItsBeginningDoesNotHideIt) {
  const auto paths = hidden({"/a/b", "/a/bcd", "/a/bce", "/a/bcf/g"});
  EXPECT_EQ(paths.hide("/a/bcfx", "#"), "#cfx");
  EXPECT_EQ(paths.hide("/a/bcz", "#"), "#cz");
}

}  // namespace
}  // namespace choral::serve
