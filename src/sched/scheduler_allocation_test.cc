// Counts operator new of this thread: a steady-state step must not call it.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <new>

#include "sched/simulated_engine_test.h"

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

constexpr std::array<int32_t, 1> kOneToken = {1};

TEST(SchedulerAllocation, SteadyStateStepsAllocateNothing) {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  SimulatedEngine engine(config, {256, 32});
  for (RequestId id = 0; id < 8; ++id) {
    ASSERT_TRUE(engine.scheduler
                    .add(make_request(id, std::vector<int32_t>(40, static_cast<int32_t>(id)), 300, static_cast<int32_t>(id % 3)))
                    .ok());
  }
  for (int i = 0; i < 10; ++i) engine.step();  // all prefills done
  ASSERT_EQ(engine.scheduler.running_count(), 8);

  const int64_t before = news;
  for (int i = 0; i < 200; ++i) {  // crosses block borders: growing, hashing and publishing included
    engine.scheduler.schedule(engine.plan);
    engine.scheduler.on_computed(engine.plan);
    for (const PlanItem& item : engine.plan.items()) engine.scheduler.commit(*item.request, kOneToken);
  }
  EXPECT_EQ(news, before);
  EXPECT_EQ(engine.plan.decode_tokens(), 8);
}

// Every second adapter is there, the others' requests find no room for ever.
class HalfResidency : public AdapterGate {
 public:
  Residency acquire(Request& request) override {
    ++asked_;
    return request.adapter_key.value() % 2 == 1 ? Residency::kResident : Residency::kNoRoom;
  }
  void begin_round() override {}
  bool prefetch(Request&) override { return false; }
  void release(Request&) override {}
  int asked() const { return asked_; }

 private:
  int asked_ = 0;
};

TEST(SchedulerAllocation, PassingOverManyWhoseAdapterHasNoRoomAllocatesNothing) {
  SchedulerConfig config;
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 64;
  config.promote_after_steps = 50;
  HalfResidency residency;
  Scheduler scheduler(config, {1024, 32}, &residency);
  StepPlan plan;
  for (RequestId id = 0; id < 400; ++id) {
    const auto key = static_cast<int32_t>(id < 8 ? 2 * id + 1 : 2 * (id % 50) + 2);
    ASSERT_TRUE(scheduler.add(make_request(id, std::vector<int32_t>(4, static_cast<int32_t>(id)), 300, key)).ok());
  }
  const auto step = [&] {
    scheduler.schedule(plan);
    scheduler.on_computed(plan);
    for (const PlanItem& item : plan.items()) scheduler.commit(*item.request, kOneToken);
  };
  for (int i = 0; i < 10; ++i) step();
  const int64_t before = news;
  const int asked_before = residency.asked();
  for (int i = 0; i < 30; ++i) step();
  EXPECT_EQ(residency.asked() - asked_before, 30 * 50);  // once for each adapter
  for (int i = 0; i < 60; ++i) step();                   // somebody is promoted
  EXPECT_EQ(news, before);
  EXPECT_EQ(plan.decode_tokens(), 8);
  EXPECT_EQ(scheduler.waiting_count(), 392);
  EXPECT_GT(scheduler.stats().adapter_drains, 0);
}

TEST(SchedulerAllocation, PreemptionAndResumptionAllocateNothing) {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 256;
  config.watermark_blocks = 0;
  SimulatedEngine engine(config, {32, 8});
  for (RequestId id = 0; id < 4; ++id) {
    ASSERT_TRUE(engine.scheduler.add(make_request(id, std::vector<int32_t>(30, static_cast<int32_t>(id)), 200)).ok());
  }
  engine.step();
  const int64_t before = news;
  for (int i = 0; i < 150; ++i) {
    engine.scheduler.schedule(engine.plan);
    engine.scheduler.on_computed(engine.plan);
    for (const PlanItem& item : engine.plan.items()) {
      if (item.needs_logits) engine.scheduler.commit(*item.request, kOneToken);
    }
  }
  EXPECT_EQ(news, before);
  EXPECT_GT(engine.scheduler.stats().preemptions, 0);
}

}  // namespace
}  // namespace choral::sched
