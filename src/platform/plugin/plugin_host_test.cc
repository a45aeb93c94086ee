#include "platform/plugin/plugin_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "support/allocation_counter.h"

namespace choral::platform {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What a plug-in's loop is given: counts how often each index was handed out.
struct Counted {
  explicit Counted(int64_t count) : seen(count) {}
  void run(choral_pool* threads) {
    const Status done = take_status(plugin_host().parallel_for(threads, std::ssize(seen), 1, body, this));
    EXPECT_TRUE(done.ok()) << done.message();
  }
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
  ThreadPool threads(3);
  choral_pool pool{threads};
  const HostCall under_way(pool);
  Counted inner(50), outer(20);
  outer.inner = &inner;
  outer.pool = &pool;
  outer.run(&pool);
  outer.expect_each(1);
  inner.expect_each(20);
}

// Two of a plug-in's threads and the engine's, all on one pool.
TEST(PluginHost, LoopsOfSeveralThreadsLeaveEachOtherAlone) {
  constexpr int kRounds = 500;
  ThreadPool threads(3);
  choral_pool pool{threads};
  const HostCall under_way(pool);
  Counted first(64), second(64);
  std::vector<std::atomic<int>> engine(64);
  const auto repeat = [&](Counted& loop) {
    for (int round = 0; round < kRounds; ++round) loop.run(&pool);
  };
  std::thread a(repeat, std::ref(first)), b(repeat, std::ref(second));
  for (int round = 0; round < kRounds; ++round) {
    threads.parallel_for(std::ssize(engine), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) engine[i].fetch_add(1);
    });
  }
  a.join();
  b.join();
  first.expect_each(kRounds);
  second.expect_each(kRounds);
  for (const auto& count : engine) ASSERT_EQ(count.load(), kRounds);
}

TEST(PluginHost, ALoopOutsideOfACallIsRefusedAndSaysSo) {
  ThreadPool threads(3);
  choral_pool pool{threads};
  Counted loop(64);
  const auto refusal = [&](choral_pool* of, int64_t count) {
    return take_status(plugin_host().parallel_for(of, count, 1, Counted::body, &loop));
  };
  for (const int64_t count : {0, 1, 64}) {
    const Status refused = refusal(&pool, count);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("parallel_for was called while the host calls nothing of this device"));
  }
  EXPECT_THAT(refusal(nullptr, 64).message(), HasSubstr("needs the pool"));
  loop.expect_each(0);
  {
    const HostCall under_way(pool);
    std::thread([&] { loop.run(&pool); }).join();  // a thread that the call waits for
  }
  loop.expect_each(1);
  EXPECT_FALSE(refusal(&pool, 64).ok()) << "the call is over";
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

TEST(PluginHost, AReasonThatFindsNoMemoryIsAReasonAllTheSame) {
  const std::string long_enough(1000, 'a');
  for (int64_t nth = 1;; ++nth) {
    testing::fail_nth_allocation(nth);
    choral_status* made = plugin_host().status_create(CHORAL_INTERNAL, long_enough.c_str());
    if (!testing::stop_failing_nth_allocation()) {
      EXPECT_EQ(take_status(made).message(), long_enough);
      EXPECT_GT(nth, 1);
      break;
    }
    plugin_host().status_release(made);  // which is nobody's to delete
    const Status seen = take_status(made);
    EXPECT_EQ(seen.code(), Code::kResourceExhausted);
    EXPECT_THAT(seen.message(), HasSubstr("no memory left"));
  }
}

TEST(PluginHost, AReasonThatIsNotHandedOnIsGivenBack) {
  const auto counted = testing::count_allocations([] {
    plugin_host().status_release(plugin_host().status_create(CHORAL_INTERNAL, "a reason that is longer than a short string"));
    plugin_host().status_release(nullptr);
  });
  EXPECT_GT(counted.allocations, 0);
  EXPECT_EQ(counted.allocations, counted.frees);
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
