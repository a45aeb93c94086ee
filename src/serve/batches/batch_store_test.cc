#include "serve/batches/batch_store.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "serve/batches/batch_json.h"
#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<BatchStore> open_batches(const testing::TempDir& folder, BatchStore::Limits limits = {.bytes = 1 << 20}) {
  auto opened = BatchStore::open(folder.path().string() + "/state", limits);
  CHORAL_CHECK(opened.ok(), opened.status().message());
  return *std::move(opened);
}

StoredFile put(BatchStore& store, const std::string& id, std::string_view content, const std::string& owner = "me") {
  auto file = store.add_file({.id = id, .owner = owner, .purpose = "batch", .name = "in.jsonl"}, content);
  CHORAL_CHECK(file.ok(), file.status().message());
  return *file;
}

StoredBatch batch_on(const std::string& file, const std::string& id = "b1") {
  StoredBatch batch{.id = id, .owner = "me", .status = "in_progress", .endpoint = "/v1/completions", .input_file = file};
  batch.output_file = "out-" + id;
  batch.error_file = "err-" + id;
  batch.facts_json = "{}";
  return batch;
}

std::string content(BatchStore& store, const std::string& file) {
  std::string text;
  for (int64_t next = 0;;) {
    const auto line = store.line(file, next);
    CHORAL_CHECK(line.ok(), line.status().message());
    if (!*line) return text;
    text += (*line)->text;
    next = (*line)->number + 1;
  }
}

TEST(BatchStore, FilesComeBackAsTheyWereForTheirOwnersAlone) {
  const testing::TempDir folder;
  const auto store = open_batches(folder);
  for (const std::string_view text :
       {std::string_view("a\nb\n"), std::string_view("a\r\n\r\n\n x"), std::string_view("\0\xFF\n\0", 4)}) {
    const StoredFile file = put(*store, "f", text);
    EXPECT_EQ(file.bytes, std::ssize(text));
    EXPECT_EQ(content(*store, "f"), text);
    EXPECT_FALSE(*store->find_file("f", "you"));
    EXPECT_FALSE(*store->remove_file("f", "you"));
    EXPECT_TRUE(*store->find_file("f", "me"));
    EXPECT_TRUE(*store->remove_file("f", "me"));
    EXPECT_EQ(content(*store, "f"), "");
  }
}

TEST(BatchStore, ListsComeInPages) {
  const testing::TempDir folder;
  const auto store = open_batches(folder);
  for (const char* id : {"f1", "f2", "f3"}) put(*store, id, "x");
  put(*store, "f4", "x", "you");
  const auto ids = [&](const ListPage& page) {
    std::string text;
    const auto listed = store->files("me", "", page);
    for (const auto& file : listed->all) text += file.id + " ";
    return text + (listed->has_more ? "more" : "");
  };
  EXPECT_EQ(ids({}), "f3 f2 f1 ");
  EXPECT_EQ(ids({.limit = 2}), "f3 f2 more");
  EXPECT_EQ(ids({.after = "f2", .limit = 2}), "f1 ");
  EXPECT_EQ(ids({.after = "f1", .oldest_first = true}), "f2 f3 ");
  EXPECT_TRUE(store->files("me", "batch_output", {})->all.empty());
  EXPECT_THAT(store->files("me", "", {.after = "f4"}).status().message(), HasSubstr("'f4'"));
}

TEST(BatchStore, AnAnsweredLineIsNotAnsweredAgain) {
  const testing::TempDir folder;
  StoredBatch batch = batch_on("f");
  {
    const auto store = open_batches(folder);
    put(*store, "f", "l0\n\n \nl3\nl4\n");
    ASSERT_TRUE(store->add_batch(batch).ok());
    EXPECT_EQ((*store->unanswered(batch, 0))->number, 0);
    ASSERT_TRUE(store->add_answer(batch, 3, false, "a3\n").ok());
    ASSERT_TRUE(store->add_answer(batch, 0, true, "e0\n").ok());
    ASSERT_TRUE(store->add_answer(batch, 0, false, "again\n").ok());
    EXPECT_FALSE(*store->find_file("out-b1", "me")) << "the batch has not ended";
  }
  const auto store = open_batches(folder);
  const auto unfinished = store->unfinished();
  ASSERT_EQ(unfinished->size(), 1u);
  EXPECT_EQ(unfinished->front().completed, 1);
  EXPECT_EQ(unfinished->front().failed, 1);
  EXPECT_EQ((*store->unanswered(batch, 0))->text, "l4\n");
  ASSERT_TRUE(store->add_answer(batch, 4, false, "a4\n").ok());
  EXPECT_FALSE(*store->unanswered(batch, 0));
  EXPECT_THAT(store->remove_file("f", "me").status().message(), HasSubstr("b1"));
  ASSERT_TRUE(store->end_batch("b1", [](StoredBatch& b) { b.status = "completed"; }).ok());
  EXPECT_TRUE(store->unfinished()->empty());
  EXPECT_EQ(content(*store, "out-b1"), "a3\na4\n");
  EXPECT_EQ((*store->find_file("out-b1", "me"))->bytes, 6);
  EXPECT_EQ((*store->find_file("err-b1", "me"))->purpose, "batch_output");
  EXPECT_TRUE(*store->remove_file("f", "me"));
}

TEST(BatchStore, SumsWhatAnswersUsed) {
  const testing::TempDir folder;
  const auto store = open_batches(folder);
  put(*store, "f", "l0\nl1\nl2\n");
  StoredBatch counted = batch_on("f"), old = batch_on("f", "b2");
  counted.facts_json = batch_facts("24h", R"({"k":"v"})");
  ASSERT_TRUE(store->add_batch(counted).ok() && store->add_batch(old).ok());
  for (const auto& batch : {counted, old}) {
    ASSERT_TRUE(store->add_answer(batch, 0, false, "a", {.input = 7, .cached_input = 4, .output = 3, .reasoning = 1}).ok());
    ASSERT_TRUE(store->add_answer(batch, 0, false, "again", {.input = 7}).ok());
    ASSERT_TRUE(store->add_answer(batch, 1, true, "no usage").ok());
    ASSERT_TRUE(store->add_answer(batch, 2, false, "c", {.input = 1, .output = 2}).ok());
  }
  const auto told = [&store](const char* id) { return nlohmann::json::parse(batch_json(**store->find_batch(id, "me"))); };
  EXPECT_EQ(told("b1")["usage"],
            nlohmann::json::parse(R"({"input_tokens":8,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,
                                                          "output_tokens_details":{"reasoning_tokens":1},"total_tokens":13})"));
  EXPECT_EQ(told("b1")["metadata"]["k"], "v");
  EXPECT_TRUE(told("b2")["usage"].is_null()) << "of an earlier version";
  EXPECT_EQ((*store->find_batch("b2", "me"))->facts_json, "{}");
}

TEST(BatchStore, HoldsNoMoreThanItsLimits) {
  const testing::TempDir folder;
  const std::string text(1000, 'x');
  const auto store = open_batches(folder, {.bytes = 3000, .files = 3, .batches = 1});
  put(*store, "f1", text);
  put(*store, "f2", text);
  EXPECT_EQ(store->add_file({.id = "f3", .owner = "me"}, text).status().code(), Code::kResourceExhausted);
  EXPECT_FALSE(*store->find_file("f3", "me"));
  const StoredBatch batch = batch_on("f1");
  ASSERT_TRUE(store->add_batch(batch).ok());
  EXPECT_EQ(store->add_batch(batch_on("f1", "b2")).code(), Code::kResourceExhausted);
  EXPECT_EQ(store->add_answer(batch, 0, false, text).code(), Code::kResourceExhausted);
  ASSERT_TRUE(*store->remove_file("f2", "me"));
  EXPECT_TRUE(store->add_answer(batch, 0, false, text).ok());
  put(*store, "f4", "x");
  put(*store, "f5", "x");
  EXPECT_EQ(store->add_file({.id = "f6", .owner = "me"}, "x").status().code(), Code::kResourceExhausted);
}

TEST(BatchStore, AKeyLeavesAsMuchAsItTakes) {
  const testing::TempDir folder;
  const std::string text(1000, 'x');
  const auto store = open_batches(folder, {.bytes = 5000, .is_shared = true});
  put(*store, "f1", text);
  put(*store, "f2", text);
  EXPECT_EQ(store->add_file({.id = "f3", .owner = "me"}, text).status().code(), Code::kResourceExhausted);
  put(*store, "f4", text, "you");
}

TEST(BatchStore, WhatIsOldGoesUnlessABatchReadsIt) {
  const testing::TempDir folder;
  {
    const auto store = open_batches(folder);
    const int64_t past = std::time(nullptr) - 1;
    ASSERT_TRUE(store->add_batch(batch_on("read")).ok());
    ASSERT_TRUE(store->add_file({.id = "read", .owner = "me", .expires_unix_s = past}, "x").ok());
    ASSERT_TRUE(store->add_file({.id = "old", .owner = "me", .expires_unix_s = past}, "x").ok());
    put(*store, "new", "x");
    EXPECT_FALSE(*store->find_file("old", "me")) << "an expired file is gone at once";
  }
  const auto store = open_batches(folder);
  EXPECT_EQ(content(*store, "old"), "");
  EXPECT_EQ(content(*store, "read"), "x");
  EXPECT_EQ(content(*store, "new"), "x");
}

TEST(BatchStore, AKilledProcessLosesNoAnswer) {
  const testing::TempDir folder;
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const StoredBatch batch = batch_on("f");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = open_batches(folder);
    std::string lines;
    for (int i = 0; i < 1000; ++i) lines += "x\n";
    put(*store, "f", lines);
    if (!store->add_batch(batch).ok()) ::_exit(1);
    for (int i = 0;; ++i) {
      if (!store->add_answer(batch, i, false, "a\n").ok()) ::_exit(1);
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
  const auto store = open_batches(folder);
  EXPECT_GT((*store->unanswered(batch, 0))->number, last);
  EXPECT_GT(store->unfinished()->front().completed, last);
}

}  // namespace
}  // namespace choral::serve
