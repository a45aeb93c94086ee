// Many adapters and little room: how many go before one that came earlier or is more urgent, and what is loaded for whom.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kAdapters = 200;

struct Traffic {
  SchedulerConfig config;
  int64_t room = 1;
  int load_steps = 0;
};

Traffic random_traffic() {
  Traffic traffic;
  SchedulerConfig& config = traffic.config;
  config.max_num_seqs = *rc::gen::inRange(1, 9);
  config.max_num_batched_tokens = 64;
  config.max_model_len = 32;
  config.max_waiting = 24;
  config.watermark_blocks = 0;
  config.fair_adapters = false;         // strictly by priority and arrival
  config.promote_after_steps = 100000;  // which alone decide
  config.most_overtaking = *rc::gen::inRange(0, 12);
  traffic.room = *rc::gen::inRange<int64_t>(1, 5);
  traffic.load_steps = *rc::gen::inRange(0, 4);
  return traffic;
}

// Some adapters are popular, most are not.
int32_t random_adapter(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  const auto number = static_cast<int32_t>((state >> 33) % 1000);
  return number < 600 ? 1 + number % 3 : 1 + number % kAdapters;
}

// What went before each request that still waits: later arrivals that took adapters.
class Overtaking {
 public:
  void add(const Request& request) { waiting_[request.id] = {&request, 0}; }
  // After a schedule().
  void count() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const Request& request = *it->second.first;
      if (request.status == RequestStatus::kWaiting) {
        ++it;
        continue;
      }
      const bool is_adapters = request.adapter_key != kBaseKey;
      it = waiting_.erase(it);
      if (!is_adapters) continue;
      for (auto& [id, other] : waiting_) {
        if (other.first->arrival < request.arrival && other.first->priority <= request.priority) ++other.second;
      }
    }
  }
  int32_t most() const {
    int32_t most = 0;
    for (const auto& [id, one] : waiting_) most = std::max(most, one.second);
    return most;
  }

 private:
  std::map<RequestId, std::pair<const Request*, int32_t>> waiting_;
};

RC_GTEST_PROP(SchedulerOvertaking, IsBoundedByMostOvertakingAndABatch, ()) {
  const Traffic traffic = random_traffic();
  const SchedulerConfig& config = traffic.config;
  SimulatedResidency memory(traffic.room, traffic.load_steps);
  SimulatedEngine engine(config, {400, kBlockTokens}, &memory);
  uint64_t state = *rc::gen::arbitrary<uint64_t>();
  Overtaking overtaking;
  RequestId next = 1;
  // Who reached the bound is waited for, once those that were let in with it have gone; while its adapter is loaded places are
  // given to others, in each step of the load.
  const int32_t bound = config.most_overtaking + config.max_num_seqs * (2 + traffic.load_steps);
  for (int step = 0; step < 50; ++step) {
    while (engine.scheduler.waiting_count() < config.max_waiting && (next < 30 || next % 5 != 0 || state % 3 == 0)) {
      auto request = make_request(next, {static_cast<int32_t>(next % 5), 1}, 1 + static_cast<int32_t>(next % 7),
                                  next % 6 == 0 ? 0 : random_adapter(state));
      const Request& raw = *request;
      ++next;
      RC_ASSERT(engine.add(std::move(request)).ok());
      overtaking.add(raw);
    }
    ++next;
    engine.scheduler.schedule(engine.plan);
    overtaking.count();
    RC_ASSERT(overtaking.most() <= bound);
    RC_ASSERT(engine.run_model() == "");
    engine.commit();
    RC_ASSERT(memory.fault() == "");
    engine.finished.clear();
  }
  RC_CLASSIFY(engine.scheduler.stats().adapter_drains > 0, "drains");
}

// While an urgent request waits for room, nothing is loaded for those who are less urgent.
RC_GTEST_PROP(SchedulerOvertaking, RoomIsGivenByPriority, ()) {
  Traffic traffic = random_traffic();
  SchedulerConfig& config = traffic.config;
  config.policy = Policy::kPriority;
  SimulatedResidency memory(traffic.room, traffic.load_steps);
  SimulatedEngine engine(config, {400, kBlockTokens}, &memory);
  uint64_t state = *rc::gen::arbitrary<uint64_t>();
  RequestId next = 1;
  const auto flood = [&] {
    while (engine.scheduler.waiting_count() < config.max_waiting - 1) {
      auto request =
          make_request(next, {static_cast<int32_t>(next % 5), 1}, 1 + static_cast<int32_t>(next % 7), random_adapter(state));
      ++next;
      RC_ASSERT(engine.add(std::move(request)).ok());
    }
  };
  const auto step = [&] {
    engine.scheduler.schedule(engine.plan);
    RC_ASSERT(engine.run_model() == "");
    engine.commit();
    engine.finished.clear();
    RC_ASSERT(memory.fault() == "");
  };
  for (int warm = *rc::gen::inRange(0, 40); warm > 0; --warm) {
    flood();
    step();
  }
  auto urgent = make_request(0, {1, 2, 3}, 3, kAdapters + 1, -5);
  RC_ASSERT(engine.add(std::move(urgent)).ok());
  const AdapterId wanted{kAdapters + 1};
  const auto is_coming = [&] { return memory.memory().book().at(wanted).has_room; };
  while (!is_coming()) {
    flood();
    const int64_t loads = memory.loads();
    step();
    if (!is_coming()) RC_ASSERT(memory.loads() == loads);
  }
  // Once it is there nobody takes it away.
  while (engine.scheduler.find(0) != nullptr && engine.scheduler.find(0)->status == RequestStatus::kWaiting) {
    RC_ASSERT(is_coming());
    flood();
    step();
  }
}

SchedulerConfig two_places() {
  SchedulerConfig config;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 64;
  config.watermark_blocks = 0;
  config.fair_adapters = false;
  return config;
}

void add(SimulatedEngine& engine, RequestId id, int32_t adapter, int32_t outputs = 4) {
  ASSERT_TRUE(engine.add(make_request(id, {static_cast<int32_t>(id), 2, 3}, outputs, adapter)).ok());
}

bool is_coming(const SimulatedResidency& memory, int32_t adapter) {
  return memory.memory().book().at(AdapterId{adapter}).has_room;
}

TEST(SchedulerOvertaking, TheNextAreFetchedWhileTheyWaitForAPlaceInTheirOrder) {
  SimulatedResidency memory(4, 1);
  SimulatedEngine engine(two_places(), {64, kBlockTokens}, &memory);
  add(engine, 1, 0, 30);
  add(engine, 2, 0, 30);
  engine.step();
  for (int32_t adapter = 1; adapter <= 6; ++adapter) add(engine, 10 + static_cast<RequestId>(adapter), adapter);
  EXPECT_EQ(memory.loads(), 0) << "an arrival alone loads nothing";
  engine.step();
  EXPECT_EQ(memory.loads(), 4);
  for (int32_t adapter = 1; adapter <= 6; ++adapter) EXPECT_EQ(is_coming(memory, adapter), adapter <= 4) << adapter;
  engine.drain();
  EXPECT_EQ(memory.loads(), 6) << "each once";
}

TEST(SchedulerOvertaking, NothingIsFetchedForThoseBehindOneThatHasNoRoom) {
  SimulatedResidency memory(4, 1, {}, {{AdapterId{2}, 4}});
  SimulatedEngine engine(two_places(), {64, kBlockTokens}, &memory);
  add(engine, 1, 0, 30);
  add(engine, 2, 0, 30);
  engine.step();
  for (int32_t adapter = 1; adapter <= 3; ++adapter) add(engine, 10 + static_cast<RequestId>(adapter), adapter);
  for (int i = 0; i < 5; ++i) engine.step();
  for (int32_t adapter = 1; adapter <= 3; ++adapter) EXPECT_EQ(is_coming(memory, adapter), adapter == 1) << adapter;
}

TEST(SchedulerOvertaking, APlaceInTheQueueIsByTheTimeOfArrival) {
  SchedulerConfig config = two_places();
  config.max_num_seqs = 1;
  SimulatedEngine engine(config, {64, kBlockTokens});
  auto parked = make_request(1, {1, 2, 3}, 2);
  engine.scheduler.note_arrival(*parked);
  add(engine, 2, 0);
  ASSERT_TRUE(engine.scheduler.add(std::move(parked)).ok());
  engine.step();
  EXPECT_EQ(engine.scheduler.running()[0]->id, 1U);
}

}  // namespace
}  // namespace choral::sched
