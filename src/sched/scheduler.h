// Decides what each step computes. The engine thread's loop is
//   schedule(plan) -> run the model -> on_computed(plan) -> share, or commit / finish where needs_logits, for each item
//   -> take_finished
// Order of a step: running requests' decode tokens first, then the next chunks of running prefills, then waiting requests while
// token budget, max_num_seqs and KV blocks last.
// Blocks. A request gets the blocks of all its known tokens when admitted; where a window is seen, those of its next step. When a
// step of a running request finds no block, the least urgent, latest running request is preempted: its blocks go, it waits again
// and later recomputes prompt and outputs as one prompt (the prefix cache may give most of it back). A request never preempts a
// more urgent one; the least urgent itself just pauses. The longest waiting request is promoted, so that none starves, but for
// those in the background: of them one a step is preempted while another finds no room.
// States. Where layers keep a state of a sequence, a request holds a place for its own while it runs, and one more for what it
// was behind its last whole block. The latter gets that block's name at the end of the prompt, every state_tokens tokens of a
// long one and at the end of the answer; then others find the prefix. A prefix is found as far as a state behind it is. Guesses
// leave theirs in a third place, which becomes the request's own when all of them come true. A state has no way back, so of
// others nothing counts as computed, and the next step computes again what came true.
// Adapters. A request runs once its adapter is in memory and at most max_loras distinct ones run. A request that must wait for
// that lets others go ahead, until most_overtaking of them did or it is promoted. Then no later request takes a further adapter,
// nor the blocks of those who have one, before it has its own. A hold on an adapter lasts from admission to the end, through
// preemption. The adapters of requests that wait for a place are fetched meanwhile, the next first, while room is free.
// Groups. A request with followers is let in with room for all of them, and they give way and come back together. The leader
// computes what is known of it first. Then a follower joins behind what they have in common, in the leader's blocks.
// A plan may be empty although has_work(): then all requests wait for adapters to be loaded, and the engine sleeps until one is,
// or until a request that sits out (Request::sits_out) goes on. No allocation in steady-state decode. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "cache/kv_cache_manager.h"
#include "cache/state_slots.h"
#include "sched/adapter_gate.h"
#include "sched/block_journal.h"
#include "sched/fair_share.h"
#include "sched/request.h"
#include "sched/scheduler_config.h"
#include "sched/step_plan.h"
#include "sched/waiting_queue.h"

namespace choral::sched {

struct SchedulerStats {
  int64_t steps = 0;  // schedule() calls
  int64_t preemptions = 0;
  int64_t promotions = 0;
  int64_t deferrals = 0;         // times a request waited a step for a prefix that another was computing
  int64_t pauses = 0;            // times the least urgent request found no block
  int64_t adapter_waits = 0;     // times an adapter's requests waited a step: loading, no room, or max_loras
  int64_t adapter_drains = 0;    // steps in which no request took a further adapter, so that one that waited long gets room
  int64_t adapter_failures = 0;  // requests ended because their adapter cannot be had
};

class Scheduler {
 public:
  // `config` must be valid (validate()). `gate` (may be null: adapters are always there) outlives the scheduler, whose end
  // releases what unfinished requests hold; so does `journal` (may be null: nobody listens).
  Scheduler(const SchedulerConfig& config, const cache::KvPoolShape& pool, AdapterGate* gate = nullptr,
            BlockJournal* journal = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Its place among those who wait is by the time of this call, or else of add(), whichever comes first.
  void note_arrival(Request& request);
  // Takes the request over and queues it. On error `request` is left as it was: invalid_argument or too_large for what can never
  // run, already_exists for the id of an unfinished one, resource_exhausted when the queue is full.
  Status add(std::unique_ptr<Request>&& request);
  // The part of add() that concerns this request alone: whether it can ever run, and the memory for what it may grow to. What
  // add() takes besides is small.
  Status make_room_for(Request& request) const;

  // Fills the plan (cleared first). An empty plan: nothing to do, or only cancelled requests were left. A plan that is not empty
  // must be ended by on_computed() or abandon() before the next schedule().
  void schedule(StepPlan& plan);

  // The plan's tokens are in the KV cache: counts advance. Requests finished meanwhile are freed.
  void on_computed(const StepPlan& plan);
  // The plan was not run (or failed): nothing advances, the requests stay as they were before schedule().
  void abandon(const StepPlan& plan);

  // What an unfinished request computed so far was seen to be sound: others may share its full blocks. Without effect from
  // distrust() on.
  void share(Request& request);
  // What it computed is not sound: nothing of it is shared any more until it is computed anew.
  static void distrust(Request& request) { request.is_distrusted = true; }

  // The tokens that follow the known ones of a running request, which are all computed: one, or several at once, which the next
  // steps compute as a chunk. No more than max_length has room for; finish it yourself when at_length_limit(). What they were
  // drawn from is shared. The step computed `guessed` guesses too (PlanItem::draft_count): those that the accepted tokens begin
  // with are computed already. Says how many those are.
  int32_t commit(Request& request, std::span<const int32_t> accepted, int32_t guessed = 0);

  // Of a group whose leader is computed: the follower, which sat out since the group began to run, comes to the next steps.
  // What it has in common with the leader is not computed again.
  void join(Request& follower);
  // How a member of a group goes on: with the tokens that another has now, or it itself, and one behind them.
  struct Branch {
    const Request* from = nullptr;
    int32_t token = 0;
  };
  // Of each member one, the leader's first; whoever is gone on from is all computed, and goes on from itself. None sits out
  // then. It is finished at its length limit, as in commit().
  void branch(Request& leader, std::span<const Branch> next);

  // Ends a request wherever it is, with its group. While its step runs, its blocks are kept until on_computed()/abandon(). The
  // first reason stays: finishing a finished request does nothing.
  void finish(Request& member, FinishReason reason);
  // Hands back a waiting request that was never admitted, so that it can be added again for another adapter: it keeps its place.
  std::unique_ptr<Request> withdraw(Request& request);
  // finish(…, kCancelled) by id; false when there is no such unfinished request.
  bool cancel(RequestId id);

  // Hands the requests finished and no longer in flight back, appended to `out`: those that finish() ended, and those that
  // ended because their adapter failed (adapter_failed).
  void take_finished(std::vector<std::unique_ptr<Request>>& out);

  Request* find(RequestId id);  // unfinished only; nullptr otherwise
  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  // Sequences: a group counts as so many as it has members.
  int32_t running_count() const { return static_cast<int32_t>(running_.size()); }
  int32_t waiting_count() const { return waiting_.sequences(); }
  int64_t waiting_tokens() const { return waiting_.tokens(); }
  int64_t predicted_waiting_tokens() const { return waiting_.predicted_tokens(); }
  // Waiting requests that the last step passed over for what they lack themselves, an adapter or a prefix under way, not for
  // room.
  int32_t deferred_count() const { return waiting_.deferred_count(step_); }
  int32_t running_adapter_count() const { return running_adapters_; }  // distinct ones, those of mixes too
  std::span<Request* const> running() const { return running_; }       // most urgent first
  std::span<Request* const> waiting() const { return waiting_.requests(); }
  const SchedulerStats& stats() const { return stats_; }
  const SchedulerConfig& config() const { return config_; }
  const cache::KVCacheManager& cache() const { return cache_; }
  const cache::StateSlots& states() const { return states_; }

 private:
  Status check_fits(const Request& request) const;
  void make_room_for_blocks(Request& request) const;
  void plan_decodes(StepPlan& plan);
  void plan_prefills(StepPlan& plan);
  void plan_drafts(StepPlan& plan);
  bool has_blocks(const Request& request) const;
  void plan_waiting(StepPlan& plan);
  bool admit_waiting(StepPlan& plan);
  void prefetch_waiting();
  void count_overtaking();
  enum class Admission : uint8_t { kAdmitted, kDeferred, kNoRoom, kNoAdapterRoom };
  Admission try_admit(Request& request, StepPlan& plan);
  Admission try_adapter(Request& request);
  bool exceeds_max_loras(const Request& request) const;
  bool may_pass_drain(const Request& request) const;
  Admission defer_adapter(Request& request, Admission why);
  void enter_running(Request& request);
  void add_followers(Request& leader, std::vector<Request*>::iterator place);
  void leave_running(Request& request);
  int64_t blocks_for_followers(const Request& leader, int64_t shared_tokens, int64_t token_count) const;
  void go_on_from(Request& member, const Request& from);
  bool shares_pending_prefix(const Request& request, int32_t cached_blocks) const;
  void plan_chunk(Request& request, StepPlan& plan);
  int32_t budget_left(const StepPlan& plan) const { return config_.max_num_batched_tokens - plan.total_tokens(); }
  void preempt_last();
  void give_up_blocks(Request& request);
  void make_way();
  void promote_longest_waiting();
  void end_step(const StepPlan& plan, bool computed);
  cache::PrefixMatch find_prefix(const Request& request) const;
  int32_t state_behind(const Request& request, cache::PrefixMatch match) const;
  void begin_state(Request& request, int32_t adopted, int32_t adopted_tokens);
  void plan_state(PlanItem& item);
  bool keeps_state_for_others(const Request& request) const;
  int32_t guesses_before_kept_state(const PlanItem& item) const;
  void let_go_of_anothers_state(const Request& request);
  void move_state(const PlanItem& item, bool computed);
  bool take_state_behind_guesses(Request& request, bool all_right);
  void name_state(Request& request, bool leaves);
  void give_states_back(Request& request);
  static void set_computed(Request& request, int32_t count);
  void extend_prefix_chain(Request& request);
  void retire_unless_in_flight(Request& request);

  SchedulerConfig config_;
  int32_t watermark_blocks_;
  AdapterGate* gate_;
  BlockJournal* journal_;
  cache::KVCacheManager cache_;
  cache::StateSlots states_;
  FairShare shares_;
  WaitingQueue waiting_;
  std::vector<Request*> running_;  // most urgent first
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<std::unique_ptr<Request>> finished_;
  uint64_t step_ = 0;
  uint64_t next_arrival_ = 1;
  Request* promoted_ = nullptr;
  int32_t running_adapters_ = 0;
  int64_t adapters_taken_ = 0;  // by requests that were admitted, ever
  struct Refusal {
    Share* share = nullptr;
    int64_t taken_before = 0;
  };
  std::vector<Refusal> refusals_;  // of the step: who waits for adapters, in order
  bool lacks_room_ = false;        // somebody who is not in the background waited for room in the last step
  bool holders_wait_ = false;      // while draining: preempted requests hold adapters
  bool plan_in_flight_ = false;
  SchedulerStats stats_;
};

}  // namespace choral::sched
