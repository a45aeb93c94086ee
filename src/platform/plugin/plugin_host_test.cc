#include "platform/plugin/plugin_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace choral::platform {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

choral_pool* as_pool(ThreadPool& pool) { return reinterpret_cast<choral_pool*>(&pool); }

// What a plug-in's loop is given: counts how often each index was handed out.
struct Counted {
  explicit Counted(int64_t count) : seen(count) {}
  void run(choral_pool* threads) { plugin_host().parallel_for(threads, std::ssize(seen), 1, body, this); }
  static void body(void* context, int64_t begin, int64_t end) {
    auto& self = *static_cast<Counted*>(context);
    for (int64_t i = begin; i < end; ++i) {
      self.seen[i].fetch_add(1);
      if (self.inner != nullptr) self.inner->run(self.pool);
    }
  }
  void expect_each(int times) const {
    for (const auto& count : seen) ASSERT_EQ(count.load(), times);
  }

  std::vector<std::atomic<int>> seen;
  Counted* inner = nullptr;
  choral_pool* pool = nullptr;
};

TEST(PluginHost, ALoopWithinALoopRunsEachIndexOnce) {
  ThreadPool pool(3);
  Counted inner(50), outer(20);
  outer.inner = &inner;
  outer.pool = as_pool(pool);
  outer.run(as_pool(pool));
  outer.expect_each(1);
  inner.expect_each(20);
}

// Two of a plug-in's threads and the engine's, all on one pool.
TEST(PluginHost, LoopsOfSeveralThreadsLeaveEachOtherAlone) {
  constexpr int kRounds = 500;
  ThreadPool pool(3);
  Counted first(64), second(64);
  std::vector<std::atomic<int>> engine(64);
  const auto repeat = [&](Counted& loop) {
    for (int round = 0; round < kRounds; ++round) loop.run(as_pool(pool));
  };
  std::thread a(repeat, std::ref(first)), b(repeat, std::ref(second));
  for (int round = 0; round < kRounds; ++round) {
    pool.parallel_for(std::ssize(engine), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) engine[i].fetch_add(1);
    });
  }
  a.join();
  b.join();
  first.expect_each(kRounds);
  second.expect_each(kRounds);
  for (const auto& count : engine) ASSERT_EQ(count.load(), kRounds);
}

TEST(PluginHost, NoBytesAreMemoryThatCanBeReleased) {
  void* memory = plugin_host().allocate(0, 64);
  EXPECT_NE(memory, nullptr);
  plugin_host().release(memory);
  EXPECT_EQ(plugin_host().allocate(16, 48), nullptr) << "no power of two";
  EXPECT_EQ(plugin_host().allocate(UINT64_MAX, 64), nullptr);
}

TEST(PluginHost, AReasonIsWholeOrSaysThatItWasCut) {
  const std::string whole(4000, 'a');
  EXPECT_EQ(take_status(plugin_host().status_create(CHORAL_INTERNAL, whole.c_str())).message(), whole);
  std::string eight;
  while (eight.size() < 5000) eight += "ä";
  const Status cut = take_status(plugin_host().status_create(CHORAL_INTERNAL, eight.c_str()));
  EXPECT_THAT(cut.message(), AllOf(StartsWith("ää"), EndsWith("ä…")));
  EXPECT_LE(cut.message().size(), 4096U);
  EXPECT_EQ(take_status(plugin_host().status_create(77, nullptr)).message(), "the plug-in gave no reason");
}

TEST(PluginHost, ATextThatDoesNotFitIsRefused) {
  char to[8];
  EXPECT_TRUE(put_text(to, "1234567", "dtype").ok());
  EXPECT_EQ(*get_text(to, "dtype"), "1234567");
  EXPECT_THAT(put_text(to, "12345678", "dtype").message(), HasSubstr("dtype = \"12345678\" can't be told to a plug-in"));
  EXPECT_EQ(*get_text(to, "dtype"), "1234567") << "as it was";
  std::fill(std::begin(to), std::end(to), 'x');
  EXPECT_THAT(get_text(to, "dtype").status().message(), HasSubstr("dtype does not end within its 8 bytes"));
}

}  // namespace
}  // namespace choral::platform
