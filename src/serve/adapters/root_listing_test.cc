#include "serve/adapters/root_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr const char* kConfig = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})";
constexpr double kQuiet = 1;

class RootListingTest : public ::testing::Test {
 protected:
  void add(const std::string& name) { root_.write(name + "/adapter_config.json", kConfig); }
  // What is news at `now`.
  std::vector<std::string> at(double now) {
    std::vector<RootChange> changes;
    const auto found = lora::adapters_in_root(root_.path());
    CHORAL_CHECK(found.ok(), found.status().message());
    unsettled_ = listing_.take(*found, now, kQuiet, changes);
    std::vector<std::string> out;
    for (const auto& change : changes) {
      const char* kind = change.kind == RootChange::Kind::kAppeared ? "+" : change.kind == RootChange::Kind::kChanged ? "~" : "-";
      out.push_back(kind + change.name);
    }
    return out;
  }

  testing::TempDir root_, beside_;
  RootListing listing_{root_.path()};
  bool unsettled_ = false;
};

TEST_F(RootListingTest, AFolderCountsOnceItHasBeenTheSameForAWhile) {
  add("sql");
  EXPECT_THAT(at(10), IsEmpty());
  EXPECT_TRUE(unsettled_);
  root_.write("sql/adapter_model.safetensors", "more of the copy");
  EXPECT_THAT(at(10.9), IsEmpty());
  EXPECT_THAT(at(11.5), IsEmpty()) << "it changed at 10.9";
  EXPECT_THAT(listing_.adapters(), IsEmpty());
  EXPECT_THAT(at(11.9), ElementsAre("+sql"));
  EXPECT_FALSE(unsettled_);
  EXPECT_THAT(at(50), IsEmpty());
}

TEST_F(RootListingTest, WhatIsGoneForAMomentIsNotTold) {
  add("sql");
  at(0);
  EXPECT_THAT(at(1), ElementsAre("+sql"));
  fs::rename(root_ / "sql", beside_ / "sql");
  EXPECT_THAT(at(2), IsEmpty());
  EXPECT_TRUE(unsettled_);
  fs::rename(beside_ / "sql", root_ / "sql");
  EXPECT_THAT(at(2.5), IsEmpty());
  EXPECT_THAT(at(3.5), IsEmpty()) << "it is what it was";
  fs::rename(root_ / "sql", beside_ / "old");
  EXPECT_THAT(at(4), IsEmpty());
  add("sql");
  EXPECT_THAT(at(4.5), IsEmpty());
  EXPECT_THAT(at(5.5), ElementsAre("~sql")) << "another folder took its place";
  fs::rename(root_ / "sql", beside_ / "away");
  EXPECT_THAT(at(6), IsEmpty());
  EXPECT_THAT(at(7), ElementsAre("-sql"));
  EXPECT_THAT(listing_.adapters(), IsEmpty());
}

}  // namespace
}  // namespace choral::serve
