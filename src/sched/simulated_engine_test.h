// A model for tests of the scheduler: its "KV" of a position is a hash of everything before it, kept in simulated blocks, and its
// next token is drawn from the KV of the last position. Reading KV that is missing, stale or another request's gives a wrong
// hash and fails at once; writing into a block that somebody else holds too fails as well. Each group of layers keeps its own, of
// which the tokens see what its window shows. A layer that keeps a state has the hash so far in the request's slot. So the
// answers of a request must be the same whatever the scheduler does: chunks, preemption, prefix cache, neighbours. Tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sched/scheduler.h"
#include "sched/simulated_requests_test.h"
#include "sched/simulated_residency_test.h"

namespace choral::sched {

class SimulatedEngine {
 public:
  SimulatedEngine(const SchedulerConfig& config, const cache::KvPoolShape& pool, SimulatedResidency* residency = nullptr)
      : scheduler(config, pool, residency),
        residency_(residency),
        pool_(pool),
        kv_(static_cast<size_t>(pool.blocks) * static_cast<size_t>(pool.block_tokens)),
        states_(static_cast<size_t>(pool.state_slots)) {}

  // As the engine takes a request in. On error it is left as it was.
  Status add(std::unique_ptr<Request>&& request) {
    const Request& r = *request;
    if (residency_ != nullptr) residency_->arrive(r);
    const Status status = scheduler.add(std::move(request));
    if (!status.ok() && residency_ != nullptr) residency_->leave(r);
    return status;
  }

  void take_finished() {
    const size_t before = finished.size();
    scheduler.take_finished(finished);
    for (size_t i = before; residency_ != nullptr && i < finished.size(); ++i) residency_->leave(*finished[i]);
  }

  // The model's run of the planned rows; says what is wrong, "" when nothing is.
  std::string run_model() {
    for (const PlanItem& item : plan.items()) {
      const Request& request = *item.request;
      const int32_t end = item.first_token + item.token_count;
      if (item.first_token != request.computed_count) return "a chunk does not begin where the last one ended";
      if (end > request.token_count() + item.draft_count) return "a chunk ends behind the known tokens";
      uint64_t expected = 0;
      for (int32_t p = 0; p < end; ++p) {
        if (p == item.first_token && !states_.empty() &&
            (item.state_from == cache::kNoSlot ? 0 : states_[item.state_from]) != expected) {
          return fmt::format("request {} goes on with another's state at {}", request.id, p);
        }
        if (item.kept_rows > 0 && p == item.first_token + item.kept_rows) states_[item.kept_slot] = expected;
        if (!states_.empty() && p == request.token_count()) states_[state_behind_known(item)] = expected;
        expected = mix_position(expected, request, p, token_at(request, p));
        for (int32_t group = 0; group < pool_.groups(); ++group) {
          if (auto fault = run_position(item, group, p, expected); !fault.empty()) return fault;
        }
      }
      if (!states_.empty()) states_[item.draft_count > 0 ? request.guess_slot : state_behind_known(item)] = expected;
    }
    return "";
  }
  void execute() { EXPECT_EQ(run_model(), ""); }

  // on_computed, sampling, stop at the length limit.
  void commit() {
    scheduler.on_computed(plan);
    for (const PlanItem& item : plan.items()) {
      Request& request = *item.request;
      if (request.finished()) continue;
      if (!item.needs_logits) {
        scheduler.share(request);
        continue;
      }
      accept(request, kv_at(request, 0, request.token_count() - 1), item.draft_count > 0 ? 1 + item.draft_count : tokens_at_once);
      if (item.draft_count > 0) {  // up to the one behind the first that is wrong
        const auto guesses = request.guessed().first(item.draft_count);
        const auto wrong = std::mismatch(guesses.begin(), guesses.end(), accepted_.begin()).first;
        accepted_.resize(1 + static_cast<size_t>(wrong - guesses.begin()));
      }
      scheduler.commit(request, accepted_, item.draft_count);
      if (request.at_length_limit()) scheduler.finish(request, FinishReason::kLength);
    }
    take_finished();
    if (residency_ != nullptr) residency_->advance();
  }

  // What comes next, and now and then something else.
  void guess() {
    for (Request* request : scheduler.running()) {
      request->guess_count = 0;
      if (most_guesses == 0 || request->remaining() != 1) continue;
      uint64_t kv = 0;
      for (int32_t p = 0; p < request->token_count(); ++p) kv = mix_position(kv, *request, p, request->tokens[p]);
      accept(*request, kv, std::min(most_guesses, request->max_length - request->token_count() - 1));
      for (const int32_t token : accepted_)
        request->guesses[request->guess_count++] = ++guesses_made_ % 4 == 0 ? (token + 1) % 3 : token;
    }
  }

  void step() {
    guess();
    scheduler.schedule(plan);
    execute();
    commit();
  }

  // Steps until nothing is left; fails after `most` of them.
  void drain(int most = 10000) {
    for (; scheduler.has_work() && most > 0; --most) {
      step();
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_FALSE(scheduler.has_work()) << "requests starve";
  }

  const Request* finished_request(RequestId id) const {
    for (const auto& request : finished) {
      if (request->id == id) return request.get();
    }
    return nullptr;
  }

  Scheduler scheduler;
  StepPlan plan;
  std::vector<std::unique_ptr<Request>> finished;
  int32_t tokens_at_once = 1;  // that a request's last token gives
  int32_t most_guesses = 0;    // of each in a step

 private:
  static int32_t token_at(const Request& request, int32_t position) {
    return position < request.token_count() ? request.tokens[position] : request.guesses[position - request.token_count()];
  }
  static int32_t state_behind_known(const PlanItem& item) {
    return item.kept_rows == item.known_count() ? item.kept_slot : item.request->state_slot;
  }
  // So many tokens behind `kv`.
  void accept(const Request& request, uint64_t kv, int32_t count) {
    const int32_t end = std::min(request.token_count() + count, request.max_length);
    accepted_.clear();
    for (int32_t position = request.token_count(); position < end; ++position) {
      accepted_.push_back(next_token(kv));
      kv = mix_position(kv, request, position, accepted_.back());
    }
  }

  // One position of one group, whose KV shall be `kv` and the group's number.
  std::string run_position(const PlanItem& item, int32_t group, int32_t position, uint64_t kv) {
    const Request& request = *item.request;
    const int32_t window = pool_.windows[group];
    if (window > 0 && position <= item.first_token - window) return "";  // no token of the step sees it
    const auto& table = request.block_tables[group];
    const int32_t block = position / pool_.block_tokens;
    if (block < table.begin() || block >= table.size()) {
      return fmt::format("request {} has no block at {} in group {}", request.id, position, group);
    }
    auto& stored = kv_at(request, group, position);
    if (position >= item.first_token) {
      if (scheduler.cache().ref_count(table[block]) != 1) return "a shared block is written";
      stored = kv + static_cast<uint64_t>(group);
    }
    if (stored == kv + static_cast<uint64_t>(group)) return "";
    return fmt::format("request {} reads wrong KV at {} in group {}", request.id, position, group);
  }

  uint64_t& kv_at(const Request& request, int32_t group, int32_t position) {
    const int32_t block = request.block_tables[group][position / pool_.block_tokens];
    return kv_[static_cast<size_t>(block) * static_cast<size_t>(pool_.block_tokens) +
               static_cast<size_t>(position % pool_.block_tokens)];
  }

  SimulatedResidency* residency_;
  cache::KvPoolShape pool_;
  std::vector<uint64_t> kv_;
  std::vector<uint64_t> states_;  // of slots
  std::vector<int32_t> accepted_;
  uint32_t guesses_made_ = 0;
};

}  // namespace choral::sched
