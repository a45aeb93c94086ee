#include "serve/responses/response_store.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<ResponseStore> open_store(const testing::TempDir& folder, ResponseStore::Limits limits = {.bytes = 1 << 20}) {
  auto opened = ResponseStore::open(folder.path().string() + "/state", limits);
  CHORAL_CHECK(opened.ok(), opened.status().message());
  return *std::move(opened);
}

bool has(ResponseStore& store, std::string_view id, std::string_view owner = "") {
  const auto found = store.find(id, owner);
  CHORAL_CHECK(found.ok(), found.status().message());
  return found->has_value();
}

TEST(ResponseStore, KeepsResponsesForTheirOwnersAlone) {
  const testing::TempDir folder;
  const auto store = open_store(folder);
  ASSERT_TRUE(
      store->put({.id = "r1", .owner = "me", .response_json = "{\"a\":1}", .input_json = "{}", .previous_id = "r0"}).ok());
  const auto found = store->find("r1", "me");
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->response_json, "{\"a\":1}");
  EXPECT_EQ((*found)->previous_id, "r0");
  EXPECT_FALSE(has(*store, "r1", "you"));
  EXPECT_FALSE(*store->remove("r1", "you"));
  EXPECT_FALSE(*store->finish("r1", "you", "{}"));
  EXPECT_TRUE(*store->remove("r1", "me"));
  EXPECT_FALSE(has(*store, "r1", "me"));
}

TEST(ResponseStore, WhatRunsEndsOnce) {
  const testing::TempDir folder;
  const auto store = open_store(folder);
  ASSERT_TRUE(store->put({.id = "r1", .response_json = "queued", .is_running = true}).ok());
  EXPECT_TRUE(*store->finish("r1", "", "cancelled"));
  EXPECT_FALSE(*store->finish("r1", "", "completed"));
  EXPECT_EQ((*store->find("r1", ""))->response_json, "cancelled");
  ASSERT_TRUE(store->put({.id = "r2", .response_json = "queued", .is_running = true}).ok());
  EXPECT_TRUE(*store->remove("r2", ""));
  EXPECT_FALSE(*store->finish("r2", "", "completed"));
  EXPECT_FALSE(has(*store, "r2"));
}

TEST(ResponseStore, AConversationIsInOrderAndNamesWhatIsGone) {
  const testing::TempDir folder;
  const auto store = open_store(folder);
  ASSERT_TRUE(store->put({.id = "r1"}).ok());
  ASSERT_TRUE(store->put({.id = "r2", .previous_id = "r1"}).ok());
  ASSERT_TRUE(store->put({.id = "r3", .previous_id = "r2"}).ok());
  const auto turns = store->conversation("r3", "");
  ASSERT_TRUE(turns.ok());
  ASSERT_EQ(turns->size(), 3u);
  EXPECT_EQ(turns->front().id, "r1");
  ASSERT_TRUE(*store->remove("r1", ""));
  EXPECT_THAT(store->conversation("r3", "").status().message(), HasSubstr("'r1'"));
  // One that goes on from itself has no beginning.
  ASSERT_TRUE(store->put({.id = "r4", .previous_id = "r4"}).ok());
  EXPECT_EQ(store->conversation("r4", "").status().code(), Code::kTooLarge);
}

TEST(ResponseStore, HoldsNoMoreThanItsLimits) {
  const testing::TempDir folder;
  const std::string text(1000, 'x');
  const auto store = open_store(folder, {.bytes = 10'000, .count = 100});
  ASSERT_TRUE(store->put({.id = "running", .is_running = true}).ok());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->put({.id = "r" + std::to_string(i), .response_json = text}).ok());
  int held = 0;
  for (int i = 0; i < 50; ++i) held += has(*store, "r" + std::to_string(i));
  EXPECT_GT(held, 5);
  EXPECT_LT(held, 10);
  EXPECT_TRUE(has(*store, "r49") && has(*store, "running"));
  EXPECT_EQ(store->put({.id = "large", .response_json = std::string(10'000, 'x')}).code(), Code::kTooLarge);
  const testing::TempDir other;
  const auto few = open_store(other, {.bytes = 1 << 20, .count = 3});
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(few->put({.id = std::to_string(i)}).ok());
  EXPECT_TRUE(has(*few, "8") && has(*few, "6"));
  EXPECT_FALSE(has(*few, "5"));
}

TEST(ResponseStore, WhatIsOldGoes) {
  const testing::TempDir folder;
  {
    const auto store = open_store(folder);
    ASSERT_TRUE(store->put({.id = "r1"}).ok());
  }
  EXPECT_TRUE(has(*open_store(folder), "r1"));
  EXPECT_FALSE(has(*open_store(folder, {.bytes = 1 << 20, .age_s = -1}), "r1"));
}

TEST(ResponseStore, AKilledProcessLosesNothingThatReturned) {
  const testing::TempDir folder;
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = open_store(folder);
    for (int i = 0;; ++i) {
      if (!store->put({.id = "r" + std::to_string(i), .response_json = std::string(500, 'x')}).ok()) ::_exit(1);
      if (::write(told[1], &i, sizeof i) != sizeof i) ::_exit(1);
    }
  }
  ::close(told[1]);
  int last = 0;
  while (last < 100 && ::read(told[0], &last, sizeof last) == sizeof last) {
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(told[0]);
  const auto store = open_store(folder);
  for (int i = 0; i <= last; ++i) EXPECT_TRUE(has(*store, "r" + std::to_string(i))) << i;
}

TEST(ResponseStore, AFileOfAnotherKindIsNamed) {
  const testing::TempDir folder;
  const std::string file = folder.path().string() + "/state/responses.sqlite3";
  {
    const auto store = open_store(folder);
    struct stat status {};
    ASSERT_EQ(::stat(file.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << "others can read it";
    EXPECT_THAT(ResponseStore::open(folder.path().string() + "/state", {.bytes = 1000}).status().message(),
                HasSubstr("another server"));
  }
  std::ofstream(file, std::ios::trunc) << std::string(5000, 'x');
  EXPECT_THAT(ResponseStore::open(folder.path().string() + "/state", {.bytes = 1000}).status().message(),
              HasSubstr("is damaged"));
}

}  // namespace
}  // namespace choral::serve
