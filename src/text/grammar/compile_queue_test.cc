// The queue's promises with jobs that we hold in our hand, and the cache's bounds.
#include "text/grammar/compile_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <thread>

#include "text/grammar/grammar_cache.h"

namespace choral::text {
namespace {

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void until_waiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

class NoGrammar : public Grammar {
  Result<std::unique_ptr<GrammarMatcher>> matcher() const override { return unsupported("no matcher"); }
};
Result<CompiledGrammar> some() { return CompiledGrammar{std::make_shared<NoGrammar>(), 100}; }

constexpr double kGenerous = 60, kShort = 0.05;
constexpr auto kSmall = CompileQueue::Lane::kSmall, kLarge = CompileQueue::Lane::kLarge;

TEST(CompileQueue, GivesResultsAndErrors) {
  CompileQueue queue({.threads = 2, .max_waiting = 4, .limit_s = kGenerous, .patience_s = kGenerous});
  EXPECT_TRUE(queue.run("a", kSmall, some).ok());
  const auto failed = queue.run("b", kSmall, []() -> Result<CompiledGrammar> { return invalid_argument("bad"); });
  EXPECT_EQ(failed.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(queue.run("c", kSmall, []() -> Result<CompiledGrammar> { throw std::bad_alloc(); }).status().code(),
            Code::kResourceExhausted);
  EXPECT_TRUE(queue.run("b", kSmall, some).ok());  // an error is not kept
}

TEST(CompileQueue, EqualWishesAreCompiledOnce) {
  // One thread and no place to wait: whoever did not share what is being compiled would be refused.
  CompileQueue queue({.threads = 1, .max_waiting = 0, .limit_s = kGenerous, .patience_s = kGenerous});
  const auto gate = std::make_shared<Gate>();
  const auto job = [&]() -> Result<CompiledGrammar> {
    gate->wait();
    return some();
  };
  std::vector<std::thread> callers;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&] { good += queue.run("same", kSmall, job).ok(); });
  gate->until_waiting(1);
  gate->open();
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(good, 4);
}

TEST(CompileQueue, AnOverrunIsRefusedAndThenEverybodyElse) {
  const auto gate = std::make_shared<Gate>();
  {
    CompileQueue queue({.threads = 1, .most_aside = 0, .max_waiting = 4, .limit_s = kShort});
    const auto stuck = [gate]() -> Result<CompiledGrammar> {
      gate->wait();
      return some();
    };
    Code overrun;
    do {
      overrun = queue.run("slow", kSmall, stuck).status().code();
    } while (overrun == Code::kResourceExhausted);  // the machine was so busy that no thread has taken it within the limit
    EXPECT_EQ(overrun, Code::kDeadlineExceeded);
    const auto never = []() -> Result<CompiledGrammar> { return invalid_argument("compiled twice"); };
    EXPECT_EQ(queue.run("slow", kSmall, never).status().code(), Code::kDeadlineExceeded);  // still the same one
    // That took the limit, so by now the thread is held for longer than that.
    EXPECT_EQ(queue.run("other", kSmall, some).status().code(), Code::kResourceExhausted);
    // The queue goes while its job is held.
  }
  gate->open();
}

TEST(CompileQueue, OnlySoManyWait) {
  const auto gate = std::make_shared<Gate>();
  CompileQueue queue({.threads = 1, .max_waiting = 0, .limit_s = kGenerous, .patience_s = kGenerous});
  const auto held = [gate]() -> Result<CompiledGrammar> {
    gate->wait();
    return some();
  };
  std::thread first([&] { EXPECT_TRUE(queue.run("a", kSmall, held).ok()); });
  gate->until_waiting(1);
  EXPECT_EQ(queue.run("b", kSmall, some).status().code(), Code::kResourceExhausted);
  gate->open();
  first.join();
  EXPECT_TRUE(queue.run("b", kSmall, some).ok());
}

TEST(CompileQueue, SmallOnesDoNotWaitForLargeOnes) {
  const auto gate = std::make_shared<Gate>();
  CompileQueue queue({.threads = 1, .limit_s = kGenerous, .patience_s = kGenerous});
  const auto held = [gate]() -> Result<CompiledGrammar> {
    gate->wait();
    return some();
  };
  std::vector<std::thread> large;
  for (const char* key : {"a", "b", "c"}) large.emplace_back([&, key] { EXPECT_TRUE(queue.run(key, kLarge, held).ok()); });
  gate->until_waiting(1);
  EXPECT_TRUE(queue.run("small", kSmall, some).ok());
  gate->open();
  for (auto& each : large) each.join();
}

TEST(CompileQueue, OneThatTakesLongIsSetAsideAndStillGivesItsResult) {
  const auto gate = std::make_shared<Gate>();
  CompileQueue queue({.threads = 1, .most_aside = 2, .limit_s = kGenerous, .patience_s = kShort});
  const auto held = [gate]() -> Result<CompiledGrammar> {
    gate->wait();
    return some();
  };
  std::vector<std::thread> callers;
  for (const char* key : {"a", "b"}) {
    callers.emplace_back([&, key] { EXPECT_TRUE(queue.run(key, kSmall, held).ok()); });
  }
  gate->until_waiting(2);  // the second has another thread
  EXPECT_TRUE(queue.run("small", kSmall, some).ok());
  callers.emplace_back([&] { EXPECT_TRUE(queue.run("c", kSmall, held).ok()); });
  gate->until_waiting(3);
  // Longer than the patience with the third, from whenever on; how much longer is all the same.
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * kShort));
  // So many and no more: the third keeps its lane's thread, and who comes is told at once.
  EXPECT_EQ(queue.run("small", kSmall, some).status().code(), Code::kResourceExhausted);
  gate->open();
  for (auto& each : callers) each.join();
  EXPECT_TRUE(queue.run("small", kSmall, some).ok());
}

TEST(GrammarCache, IsBoundedInNumberAndBytes) {
  GrammarCache cache(3, 1000, 1000);
  const auto add = [&](const std::string& key, size_t bytes) { cache.add(key, {std::make_shared<NoGrammar>(), bytes}); };
  for (const char* key : {"a", "b", "c"}) add(key, 100);
  EXPECT_TRUE(cache.find("a"));  // now b is the oldest
  add("d", 100);
  EXPECT_TRUE(cache.find("a") && cache.find("c") && cache.find("d"));
  EXPECT_FALSE(cache.find("b"));
  add("e", 950);
  EXPECT_TRUE(cache.find("e"));
  EXPECT_FALSE(cache.find("a") || cache.find("c") || cache.find("d"));
  add("f", 5000);
  EXPECT_FALSE(cache.find("f"));
  add("e", 10);
  EXPECT_EQ(cache.size_bytes(), 12u);
}

// A grammar with its share of the memory, as compilers make them.
struct HeldGrammar : NoGrammar {
  GrammarHold hold;
};

TEST(GrammarCache, WhatAnswersInFlightHoldCountsToo) {
  GrammarCache cache(9, 1000, 100);
  const auto compile = [&](const std::string& key) -> Result<std::shared_ptr<const Grammar>> {
    auto grammar = std::make_shared<HeldGrammar>();
    CHORAL_TRY(grammar->hold, cache.hold(40));
    cache.add(key, {grammar, 40});
    return std::shared_ptr<const Grammar>(grammar);
  };
  auto in_flight = compile("a");
  ASSERT_TRUE(in_flight.ok());
  ASSERT_TRUE(compile("b").ok());
  ASSERT_TRUE(compile("c").ok()) << "those that only the cache has make room";
  EXPECT_FALSE(cache.find("b"));
  auto second = compile("d");
  ASSERT_TRUE(second.ok());
  const auto refused = compile("e");
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted) << "two answers hold 80 of 100";
  in_flight = Status(Code::kCancelled, "it ended");
  EXPECT_TRUE(compile("e").ok());
  EXPECT_EQ(cache.hold(101).status().code(), Code::kTooLarge) << "waiting would not help";
}

}  // namespace
}  // namespace choral::text
