// Counts operator new of this thread: a steady-state step must not call it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "sched/simulated_engine.h"

namespace {
thread_local int64_t news = 0;
}  // namespace

void* operator new(size_t size) {
  ++news;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace choral::sched {
namespace {

TEST(SchedulerAllocation, SteadyStateStepsAllocateNothing) {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  SimulatedEngine engine(config, 256, 32);
  for (RequestId id = 0; id < 8; ++id) {
    ASSERT_TRUE(engine.scheduler.add(make_request(id, std::vector<int32_t>(40, static_cast<int32_t>(id)), 300, id % 3)).ok());
  }
  for (int i = 0; i < 10; ++i) engine.step();  // all prefills done
  ASSERT_EQ(engine.scheduler.running_count(), 8);

  const int64_t before = news;
  for (int i = 0; i < 200; ++i) {  // crosses block borders: growing, hashing and publishing included
    engine.scheduler.schedule(engine.plan);
    engine.scheduler.on_computed(engine.plan);
    for (const PlanItem& item : engine.plan.items()) engine.scheduler.append_token(*item.request, 1);
  }
  EXPECT_EQ(news, before);
  EXPECT_EQ(engine.plan.decode_tokens(), 8);
}

TEST(SchedulerAllocation, PreemptionAndResumptionAllocateNothing) {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 256;
  config.watermark_blocks = 0;
  SimulatedEngine engine(config, 32, 8);
  for (RequestId id = 0; id < 4; ++id) {
    ASSERT_TRUE(engine.scheduler.add(make_request(id, std::vector<int32_t>(30, static_cast<int32_t>(id)), 200)).ok());
  }
  engine.step();
  const int64_t before = news;
  for (int i = 0; i < 150; ++i) {
    engine.scheduler.schedule(engine.plan);
    engine.scheduler.on_computed(engine.plan);
    for (const PlanItem& item : engine.plan.items()) {
      if (item.needs_logits) engine.scheduler.append_token(*item.request, 1);
    }
  }
  EXPECT_EQ(news, before);
  EXPECT_GT(engine.scheduler.stats().preemptions, 0);
}

}  // namespace
}  // namespace choral::sched
