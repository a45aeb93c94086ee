// Random lives of the scheduler: any interleaving of add, step, cancel and finish, under random limits.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "sched/simulated_engine_test.h"

namespace choral::sched {
namespace {

constexpr int32_t kBlockTokens = 4;

// More cases than rapidcheck's 100: they are cheap, and preemption amid sharing is rare. RC_PARAMS of the caller wins.
[[maybe_unused]] const int kParams = setenv("RC_PARAMS", "max_success=1500", 0);

SchedulerConfig random_config() {
  SchedulerConfig config;
  config.max_num_seqs = *rc::gen::inRange(1, 6);
  config.max_model_len = *rc::gen::inRange(8, 64);
  config.enable_chunked_prefill = *rc::gen::inRange(0, 4) > 0;
  const int32_t least = config.enable_chunked_prefill ? config.max_num_seqs : std::max(config.max_num_seqs, config.max_model_len);
  config.max_num_batched_tokens = *rc::gen::inRange(least, least + 40);
  config.max_prefill_chunk = config.enable_chunked_prefill ? *rc::gen::element(0, 0, 3, 9) : 0;
  config.enable_prefix_caching = *rc::gen::inRange(0, 4) > 0;
  config.policy = *rc::gen::element(Policy::kFcfs, Policy::kPriority);
  config.max_waiting = *rc::gen::inRange(1, 12);
  config.fair_adapters = *rc::gen::arbitrary<bool>();
  config.promote_after_steps = *rc::gen::element(1, 5, 40, 100000);
  config.watermark_blocks = *rc::gen::element(-1, 0, 1, 3);
  config.max_loras = *rc::gen::element(0, 0, 1, 2);
  return config;
}

// What the keys stand for: three adapters alone, one with another factor, and mixes.
const std::vector<int32_t>& adapters_of(int32_t key) {
  static const std::vector<int32_t> kAdapters[] = {{}, {1}, {2}, {3}, {1}, {1, 2}, {2, 3}, {1, 4}, {3, 4}, {1, 2, 3}};
  return kAdapters[key];
}

std::unique_ptr<Request> random_request(RequestId id, int32_t max_model_len) {
  // One letter but for the tail, so that prefixes meet.
  std::vector<int32_t> tokens;
  const int32_t length = *rc::gen::inRange(1, max_model_len + 1);
  const int letter = *rc::gen::inRange(0, 2);
  const int32_t tail = *rc::gen::inRange(0, 6);
  for (int32_t i = 0; i < length; ++i) tokens.push_back(i < length - tail ? letter : *rc::gen::inRange(0, 2));
  const int32_t activation = *rc::gen::inRange(0, 2) == 0 ? 0 : *rc::gen::inRange(0, length + 1);
  auto request = make_activated_request(id, std::move(tokens), *rc::gen::inRange(1, 24), *rc::gen::inRange(0, 10), activation);
  request->adapter_ids = adapter_ids(adapters_of(request->adapter_key.value()));
  request->priority = *rc::gen::inRange(-2, 3);
  request->wants_prompt_logprobs = *rc::gen::inRange(0, 10) == 0;
  if (*rc::gen::inRange(0, 10) == 0) request->prefix_root.reset();
  return request;
}

// Of the groups of layers: all positions, a window, both, several of a kind.
std::vector<int32_t> random_windows() {
  const int32_t window = *rc::gen::inRange(1, 14);
  return *rc::gen::elementOf(
      std::vector<std::vector<int32_t>>{{0}, {0}, {window}, {0, window}, {window, 0, window}, {window, 2 * window}});
}

SimulatedResidency random_residency() {
  std::set<AdapterId> failing;
  if (*rc::gen::inRange(0, 4) == 0) failing.insert(AdapterId{3});
  std::map<AdapterId, int64_t> sizes;
  for (int32_t adapter = 1; adapter <= 4; ++adapter) sizes[AdapterId{adapter}] = *rc::gen::inRange<int64_t>(1, 5);
  const int64_t most_adapters = *rc::gen::element(lora::kAnyNumber, int64_t{1}, int64_t{2}, int64_t{3});
  const size_t device_slots = *rc::gen::element<size_t>(1000, 1, 2, 3);
  return SimulatedResidency(*rc::gen::inRange<int64_t>(1, 12), *rc::gen::inRange(0, 4), failing, sizes, most_adapters,
                            device_slots, *rc::gen::inRange(0, 4));
}

// Pins one that is in memory, or frees it.
void pin_one(SimulatedResidency& residency) {
  AdapterMemory& memory = residency.memory();
  const AdapterId adapter{*rc::gen::inRange(1, 5)};
  if (!memory.book().knows(adapter)) return;
  if (*rc::gen::arbitrary<bool>() && memory.resident(adapter)) {
    (void)memory.pin(adapter);
  } else {
    memory.unpin(adapter);
  }
}

// Everything that must hold between two calls.
void check_state(const Scheduler& scheduler, const std::map<RequestId, Request*>& live, const SimulatedResidency* residency) {
  const cache::KVCacheManager& cache = scheduler.cache();
  std::map<cache::BlockId, int32_t> holders;
  int32_t running = 0;
  std::set<AdapterId> running_adapters;
  size_t holding = 0;
  for (const auto& [id, request] : live) {
    for (const auto& table : request->block_tables) RC_ASSERT(table.size() * cache.block_tokens() >= request->computed_count);
    RC_ASSERT(request->published_blocks * cache.block_tokens() <= request->computed_count);
    RC_ASSERT(request->token_count() <= request->max_length);
    if (request->status == RequestStatus::kRunning) {
      ++running;
      running_adapters.insert(request->adapter_ids.begin(), request->adapter_ids.end());
      if (residency != nullptr && request->adapter_key != kBaseKey) RC_ASSERT(residency->holds(*request));
    }
    if (residency != nullptr && residency->holds(*request)) ++holding;
    if (request->status == RequestStatus::kWaiting || request->status == RequestStatus::kPreempted) {
      for (const auto& table : request->block_tables) RC_ASSERT(table.empty());
    }
    std::set<cache::BlockId> distinct;
    int64_t held = 0;
    for (const auto& table : request->block_tables) {
      held += table.size() - table.begin();
      for (int32_t i = 0; i < table.size(); ++i) {
        RC_ASSERT((table[i] == cache::kNoBlock) == (i < table.begin()));
        if (i >= table.begin()) distinct.insert(table[i]);
      }
    }
    RC_ASSERT(std::ssize(distinct) == held);
    RC_ASSERT(held <= cache.most_blocks(request->token_count() + request->guess_count));
    for (const cache::BlockId block : distinct) ++holders[block];
  }
  RC_ASSERT(running == scheduler.running_count());
  RC_ASSERT(running <= scheduler.config().max_num_seqs);
  RC_ASSERT(static_cast<int32_t>(running_adapters.size()) == scheduler.running_adapter_count());
  if (scheduler.config().max_loras > 0) RC_ASSERT(scheduler.running_adapter_count() <= scheduler.config().max_loras);
  if (residency != nullptr) {
    RC_ASSERT(residency->fault() == "");
    RC_ASSERT(residency->holders() == holding);  // nobody who is gone
    const auto& book = residency->memory().book();
    RC_ASSERT(book.used().within(book.budget()));
  }
  for (cache::BlockId block = 0; block < cache.block_count(); ++block) {
    const auto held = holders.find(block);
    RC_ASSERT(cache.ref_count(block) == (held == holders.end() ? 0 : held->second));
  }
  RC_ASSERT(cache.free_blocks() + static_cast<int32_t>(holders.size()) == cache.block_count());
  // A block with several holders lies in the computed part of each.
  for (const auto& [id, request] : live) {
    for (const auto& table : request->block_tables) {
      for (int32_t i = table.begin(); i < table.size(); ++i) {
        if (cache.ref_count(table[i]) > 1) RC_ASSERT((i + 1) * cache.block_tokens() <= request->computed_count);
      }
    }
  }
}

void check_plan(const SimulatedEngine& engine, const SimulatedResidency* residency = nullptr) {
  const SchedulerConfig& config = engine.scheduler.config();
  RC_ASSERT(engine.plan.total_tokens() <= config.max_num_batched_tokens);
  RC_ASSERT(static_cast<int32_t>(engine.plan.items().size()) <= config.max_num_seqs);
  RC_ASSERT(!engine.plan.empty() || !engine.scheduler.has_work() || (residency != nullptr && residency->loading()));
  int32_t row = 0;
  AdapterKey last_key{-1};
  std::set<const Request*> seen;
  for (const PlanItem& item : engine.plan.items()) {
    RC_ASSERT(item.first_row == row);
    row += item.token_count;
    RC_ASSERT(item.token_count > 0);
    const AdapterKey key = item.request->adapter_key_at(item.first_token + item.token_count - 1);
    RC_ASSERT(key >= last_key);
    last_key = key;
    RC_ASSERT(seen.insert(item.request).second);
    RC_ASSERT(item.request->status == RequestStatus::kRunning);
    const bool last = item.first_token + item.known_count() == item.request->token_count();
    RC_ASSERT(item.draft_count == 0 || (last && item.draft_count <= item.request->guess_count));
    RC_ASSERT(item.needs_logits == last);
    RC_ASSERT(config.enable_chunked_prefill || last || item.first_token >= item.request->prompt_count);
    if (item.request->wants_prompt_logprobs) RC_ASSERT(item.request->cached_prompt_tokens == 0);
  }
  RC_ASSERT(row == engine.plan.total_tokens());
  for (const PlanItem& item : engine.plan.items()) {
    for (int32_t i = 0; i < item.token_count; ++i) {
      RC_ASSERT((i < item.base_tokens) == (item.request->adapter_key_at(item.first_token + i) == kBaseKey));
    }
  }
}

void check_answers(const SimulatedEngine& engine) {
  for (const auto& request : engine.finished) {
    const std::vector<int32_t> expected = expected_output(*request, request->prompt(), request->output_count());
    RC_ASSERT(std::ranges::equal(request->output(), expected));
    if (request->adapter_failed) RC_ASSERT(request->finish_reason == FinishReason::kError && request->output_count() == 0);
    if (request->finish_reason == FinishReason::kLength) RC_ASSERT(request->token_count() == request->max_length);
    for (const auto& table : request->block_tables) RC_ASSERT(table.empty());
  }
}

RC_GTEST_PROP(SchedulerProperty, AnyLifeKeepsTheRules, ()) {
  SchedulerConfig config = random_config();
  const cache::KvPoolShape pool{.blocks = *rc::gen::inRange(2, 32),
                                .block_tokens = kBlockTokens,
                                .windows = random_windows(),
                                .state_slots = *rc::gen::element(0, 0, 1, 3, 8)};
  config.state_tokens = *rc::gen::element(4, 12, 1024);
  SimulatedResidency memory = random_residency();
  SimulatedResidency* const residency = *rc::gen::inRange(0, 4) == 0 ? nullptr : &memory;
  SimulatedEngine engine(config, pool, residency);
  engine.tokens_at_once = *rc::gen::element(1, 1, 1, 2, 5);
  engine.most_guesses = *rc::gen::element(0, 1, 3, 12);
  Scheduler& scheduler = engine.scheduler;
  std::map<RequestId, Request*> live;
  RequestId next_id = 1;
  size_t added = 0;
  const auto forget_finished = [&] {
    engine.take_finished();
    for (const auto& request : engine.finished) live.erase(request->id);
  };
  const auto cancel_one = [&] {
    if (live.empty()) return;
    auto victim = live.begin();
    std::advance(victim, *rc::gen::inRange<size_t>(0, live.size()));
    const bool was_live = !victim->second->finished();
    if (*rc::gen::arbitrary<bool>()) {
      RC_ASSERT(scheduler.cancel(victim->first) == was_live);
    } else {
      scheduler.finish(*victim->second, *rc::gen::element(FinishReason::kStop, FinishReason::kError));
    }
  };

  const int events = *rc::gen::inRange(0, 120);
  for (int event = 0; event < events; ++event) {
    const int kind = *rc::gen::inRange(0, 11);
    if (kind < 3) {
      auto request = random_request(next_id++, config.max_model_len);
      Request* raw = request.get();
      if (engine.add(std::move(request)).ok()) {
        live[raw->id] = raw;
        ++added;
      } else {
        RC_ASSERT(request != nullptr);
      }
    } else if (kind == 3) {
      cancel_one();
      forget_finished();
    } else if (kind == 4) {
      pin_one(memory);
    } else {
      engine.guess();
      scheduler.schedule(engine.plan);
      check_plan(engine, residency);
      check_state(scheduler, live, residency);
      if (kind == 5) cancel_one();  // while the step runs
      if (kind == 6) {
        scheduler.abandon(engine.plan);
        memory.advance();
        forget_finished();
      } else {
        RC_ASSERT(engine.run_model() == "");
        engine.commit();
        forget_finished();
      }
    }
    check_state(scheduler, live, residency);
  }

  // From here on nobody comes: everybody ends within a bound. Each step computes a token of the most urgent one, and a preempted
  // request recomputes at most what it had; or everybody waits for loads: of what was fetched ahead, of a request's own adapters,
  // and once more when one before it took their room.
  int64_t bound = 1;
  for (const auto& [id, request] : live) bound += int64_t{request->max_length} * (request->max_length + 1) + 20;
  for (; scheduler.has_work(); --bound) {
    RC_ASSERT(bound > 0);
    engine.guess();
    scheduler.schedule(engine.plan);
    check_plan(engine, residency);
    RC_ASSERT(engine.run_model() == "");
    engine.commit();
    forget_finished();
    check_state(scheduler, live, residency);
  }
  check_answers(engine);
  RC_ASSERT(memory.holders() == 0u);
  RC_ASSERT(memory.memory().voice_count() == 0u);
  RC_ASSERT(scheduler.running_adapter_count() == 0);
  RC_ASSERT(engine.finished.size() == added);
  RC_ASSERT(scheduler.cache().free_blocks() == pool.blocks);
  RC_ASSERT(scheduler.states().free_count() == std::max(pool.state_slots, 1));
  RC_CLASSIFY(scheduler.states().named() > 0, "kept states");
  RC_CLASSIFY(engine.most_guesses > 0 && pool.state_slots > 0, "guesses of states");
  for (cache::BlockId block = 0; block < pool.blocks; ++block) RC_ASSERT(scheduler.cache().ref_count(block) == 0);
  RC_CLASSIFY(scheduler.stats().preemptions > 0, "preemption");
  RC_CLASSIFY(scheduler.stats().promotions > 0, "promotion");
  RC_CLASSIFY(scheduler.stats().deferrals > 0, "deferral");
  RC_CLASSIFY(scheduler.stats().pauses > 0, "pause");
  RC_CLASSIFY(scheduler.stats().adapter_waits > 0, "adapter waits");
  RC_CLASSIFY(scheduler.stats().adapter_drains > 0, "adapter drains");
  RC_CLASSIFY(scheduler.stats().adapter_failures > 0, "adapter failures");
  RC_CLASSIFY(scheduler.cache().stats().hit_tokens > 0, "prefix hits");
  RC_CLASSIFY(scheduler.cache().stats().evicted_blocks > 0, "evictions");
}

// Under a flood that never ends each request still finishes, whatever its priority and adapter.
RC_GTEST_PROP(SchedulerProperty, NobodyStarvesUnderAFlood, ()) {
  SchedulerConfig config = random_config();
  config.promote_after_steps = *rc::gen::inRange(1, 30);
  SimulatedEngine engine(config, {*rc::gen::inRange(4, 20), kBlockTokens, random_windows()});
  const auto flood = [&](RequestId& next) {
    while (engine.scheduler.waiting_count() < config.max_waiting) {
      auto request = make_request(next, std::vector<int32_t>(1 + next % 7, static_cast<int32_t>(next % 5)),
                                  static_cast<int32_t>(1 + next % 6), static_cast<int32_t>(next % 4), -5);
      ++next;
      if (!engine.scheduler.add(std::move(request)).ok()) return;
    }
  };
  auto patient = random_request(0, config.max_model_len);
  patient->priority = 5;
  RC_PRE(engine.scheduler.add(std::move(patient)).ok());
  RequestId next = 1;
  // It waits at most for its promotion, behind those already promoted (max_waiting + max_num_seqs older ones at most), each of
  // which, once promoted, computes at least a token a step and is preceded by a drain of the running ones.
  const int one = 3 * (config.max_model_len + 24);
  const int bound = (config.max_waiting + config.max_num_seqs + 1) * (config.promote_after_steps + one);
  int steps = 0;
  for (; engine.finished_request(0) == nullptr; ++steps) {
    RC_ASSERT(steps < bound);
    flood(next);
    engine.scheduler.schedule(engine.plan);
    RC_ASSERT(engine.run_model() == "");
    engine.commit();
    if (engine.finished.size() > 64 && engine.finished_request(0) == nullptr) engine.finished.clear();
  }
}

// Traffic that is never short of requests for the popular adapters, memory for one or two: a request of a rare adapter ends too,
// and so does one of the base, under any priorities, and with preempted requests that hold adapters.
RC_GTEST_PROP(SchedulerProperty, NobodyStarvesWhenAdaptersDoNotFit, ()) {
  SchedulerConfig config = random_config();
  config.promote_after_steps = *rc::gen::inRange(1, 30);
  config.max_loras = *rc::gen::inRange(0, 3);
  config.max_model_len = *rc::gen::inRange(16, 32);  // few blocks, long outputs: preemption is frequent
  if (!config.enable_chunked_prefill)
    config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, config.max_model_len);
  const bool mixes = *rc::gen::arbitrary<bool>();
  if (mixes && config.max_loras == 1) config.max_loras = 2;
  SimulatedResidency memory(*rc::gen::inRange<int64_t>(mixes ? 2 : 1, 4), *rc::gen::inRange(0, 4));
  SimulatedEngine engine(config, {*rc::gen::inRange(6, 12), kBlockTokens, random_windows()}, &memory);
  // Zipf: key k with weight 1/k, of a fixed cycle; half as many of the base.
  static constexpr int32_t kAlone[] = {1, 2, 1, 0, 3, 1, 2, 0, 1, 4, 2, 1, 3, 1, 0};
  static constexpr int32_t kMixed[] = {5, 2, 1, 0, 8, 5, 6, 0, 7, 4, 2, 1, 3, 8, 0};
  const uint64_t stride = *rc::gen::element<uint64_t>(1, 2, 4, 7);
  const int32_t flood_priority = *rc::gen::element(-5, 0, 5), base_priority = *rc::gen::element(-9, 0, 9);
  const auto flood = [&](RequestId& next) {
    while (engine.scheduler.waiting_count() < config.max_waiting) {
      const int32_t key = (mixes ? kMixed : kAlone)[next * stride % std::size(kAlone)];
      auto request = make_request(next, std::vector<int32_t>(1 + next % 7, static_cast<int32_t>(next % 5)),
                                  static_cast<int32_t>(1 + next * 5 % 16), key, key == 0 ? base_priority : flood_priority);
      request->adapter_ids = adapter_ids(adapters_of(key));
      ++next;
      if (!engine.add(std::move(request)).ok()) return;
    }
  };
  auto patient = random_request(0, config.max_model_len);
  patient->priority = 3;
  const int32_t key = mixes ? *rc::gen::element(0, 1, 5, 8) : *rc::gen::element(0, 1, 3);
  use_adapters(*patient, key, adapters_of(key));
  patient->prefix_root.reset();
  RequestId next = 1;
  if (*rc::gen::arbitrary<bool>()) {
    flood(next);
    engine.step();
  }
  RC_PRE(engine.add(std::move(patient)).ok());
  // Each promoted request ahead of it waits for a drain of those that run or hold, recomputation included, and a load.
  const int one = (config.max_num_seqs + 2) * 3 * (config.max_model_len + 24) + 8;
  const int bound = (config.max_waiting + config.max_num_seqs + 1) * (config.promote_after_steps + one);
  for (int steps = 0; engine.finished_request(0) == nullptr; ++steps) {
    RC_ASSERT(steps < bound);
    flood(next);
    engine.scheduler.schedule(engine.plan);
    RC_ASSERT(!engine.plan.empty() || memory.loading());
    if (config.max_loras > 0) RC_ASSERT(engine.scheduler.running_adapter_count() <= config.max_loras);
    RC_ASSERT(engine.run_model() == "");
    engine.commit();
    RC_ASSERT(memory.fault() == "");
    if (engine.finished.size() > 64 && engine.finished_request(0) == nullptr) engine.finished.clear();
  }
  RC_ASSERT(!engine.finished_request(0)->adapter_failed);
  RC_CLASSIFY(engine.scheduler.stats().adapter_drains > 0, "adapter drains");
  RC_CLASSIFY(engine.scheduler.stats().preemptions > 0, "preemption");
}

}  // namespace
}  // namespace choral::sched
