#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace choral::sched {
namespace {

const SchedulerConfig& checked(const SchedulerConfig& config) {
  const Status status = validate(config);
  CHORAL_CHECK(status.ok(), status.message());
  return config;
}

int32_t most_step_tokens(const SchedulerConfig& config) {
  return config.max_prefill_chunk > 0 ? std::min(config.max_prefill_chunk, config.max_num_batched_tokens)
                                      : config.max_num_batched_tokens;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, const cache::KvPoolShape& pool, AdapterGate* gate, BlockJournal* journal)
    : config_(checked(config)),
      watermark_blocks_(config.watermark_blocks >= 0 ? config.watermark_blocks : pool.blocks / 100),
      gate_(gate),
      journal_(journal),
      cache_(pool, most_step_tokens(config), config.enable_prefix_caching, journal),
      states_(pool.state_slots),
      waiting_(config) {
  const size_t most_live = static_cast<size_t>(config.max_waiting) + static_cast<size_t>(config.max_num_seqs);
  running_.reserve(config.max_num_seqs);
  finished_.reserve(most_live);
  requests_.reserve(most_live);
  refusals_.reserve(most_live);
}

Scheduler::~Scheduler() {
  for (const auto& [id, request] : requests_) {
    if (request->holds_adapter) gate_->release(*request);
  }
}

void Scheduler::schedule(StepPlan& plan) {
  CHORAL_CHECK(!plan_in_flight_, "schedule() before the last plan ended");
  plan.reserve(config_.max_num_seqs);
  plan.clear();
  ++step_;
  ++stats_.steps;
  promote_longest_waiting();
  make_way();
  const int64_t preemptions_before = stats_.preemptions;
  plan_decodes(plan);
  plan_prefills(plan);
  // Blocks are short when somebody was just preempted: admitting now would only bring on the next preemption.
  if (stats_.preemptions == preemptions_before) plan_waiting(plan);
  plan_drafts(plan);
  plan.group();
  plan_in_flight_ = !plan.empty();
}

void Scheduler::plan_decodes(StepPlan& plan) {
  // A prefill has its blocks since it was admitted, but for those of a window; several tokens accepted at once need theirs as one
  // does, and come later.
  // In order of urgency, and a victim is always the last one running: whoever is preempted is not in the plan yet.
  for (size_t i = 0; i < running_.size(); ++i) {
    Request& request = *running_[i];
    if (request.sits_out) continue;
    CHORAL_CHECK(request.remaining() > 0, "a running request got no token after its last step and was not finished");
    const auto grow = [&] { return cache_.grow(request.block_tables, request.computed_count, request.token_count()); };
    bool room = grow();
    while (!room && running_.back() != &request) {
      preempt_last();
      room = grow();
    }
    if (room) {
      if (request.remaining() == 1) plan_chunk(request, plan);
    } else {
      CHORAL_CHECK(running_.size() > 1, "a request that fits alone found no block although it is alone");
      ++stats_.pauses;  // keeps its blocks and computed tokens until others finish or need them
    }
  }
}

// What nobody else needs, of rows and of blocks.
void Scheduler::plan_drafts(StepPlan& plan) {
  for (PlanItem& item : plan.items()) {
    Request& request = *item.request;
    if (!item.is_decode) continue;
    int32_t count = std::min({request.guess_count, budget_left(plan), most_step_tokens(config_) - 1});
    if (states_.wanted()) count = std::min(count, guesses_before_kept_state(item));
    if (count == 0) continue;
    CHORAL_CHECK(request.token_count() + count < request.max_length, "guesses leave room for the token behind them");
    if (!cache_.grow(request.block_tables, request.computed_count, request.token_count() + count)) continue;
    plan.add_draft(item, count);
    if (states_.wanted()) request.guess_slot = states_.take();
  }
}

void Scheduler::plan_prefills(StepPlan& plan) {
  for (Request* request : running_) {
    if (budget_left(plan) == 0) return;
    if (!request->sits_out && request->remaining() > 1 && has_blocks(*request)) plan_chunk(*request, plan);
  }
}

// For all its known tokens, or those of the step where a window is seen; else it pauses.
bool Scheduler::has_blocks(const Request& request) const {
  return cache_.covers(request.block_tables, request.computed_count, request.token_count());
}

void Scheduler::enter_running(Request& request) {
  for (ShareAccount* account : request.share->accounts) {
    if (++account->running_requests == 1 && account->adapter != lora::kBaseAdapter) ++running_adapters_;
  }
}

void Scheduler::leave_running(Request& request) {
  for (ShareAccount* account : request.share->accounts) {
    if (--account->running_requests == 0 && account->adapter != lora::kBaseAdapter) --running_adapters_;
  }
}

void Scheduler::plan_chunk(Request& request, StepPlan& plan) {
  PlanItem& item = plan.add(request, std::min({request.remaining(), budget_left(plan), most_step_tokens(config_)}));
  if (states_.wanted()) plan_state(item);
  request.in_flight = true;
}

void Scheduler::preempt_last() {
  Request& victim = *running_.back();
  CHORAL_CHECK(!victim.in_flight, "a request of this plan cannot be preempted");
  running_.pop_back();
  leave_running(victim);
  if (states_.wanted()) name_state(victim, /*leaves=*/true);
  cache_.release(victim.block_tables);
  give_states_back(victim);
  victim.status = RequestStatus::kPreempted;
  victim.computed_count = 0;
  victim.published_blocks = 0;
  victim.is_distrusted = false;
  ++victim.preemption_count;
  ++stats_.preemptions;
  waiting_.push(victim);
}

void Scheduler::make_way() {
  if (std::exchange(lacks_room_, false) && !running_.empty() && running_.back()->in_background) preempt_last();
}

void Scheduler::note_arrival(Request& request) {
  if (request.arrival != 0) return;
  request.arrival = next_arrival_++;
  request.last_progress_step = step_;
}

void Scheduler::promote_longest_waiting() {
  // One at a time: the rest of the queue keeps its order of urgency, and yet each gets its turn, the longest waiting first.
  if (promoted_ != nullptr) return;
  Request* longest = waiting_.longest_waiting();
  if (longest == nullptr || step_ - longest->last_progress_step < static_cast<uint64_t>(config_.promote_after_steps)) return;
  longest->promoted = true;
  promoted_ = longest;
  ++stats_.promotions;
}

void Scheduler::on_computed(const StepPlan& plan) { end_step(plan, true); }
void Scheduler::abandon(const StepPlan& plan) { end_step(plan, false); }

void Scheduler::end_step(const StepPlan& plan, bool computed) {
  CHORAL_CHECK(plan_in_flight_ || plan.empty(), "a plan ended twice, or was not made by schedule()");
  plan_in_flight_ = false;
  for (const PlanItem& item : plan.items()) {
    Request& request = *item.request;
    CHORAL_CHECK(request.in_flight, "a plan ended that is not the last one of schedule()");
    request.in_flight = false;
    if (states_.wanted()) move_state(item, computed);
    if (computed) set_computed(request, request.computed_count + item.known_count());
    if (request.finished()) retire(request);
  }
}

void Scheduler::share(Request& request) {
  if (!cache_.prefix_caching() || !request.prefix_root || request.is_distrusted) return;
  const int32_t full = request.computed_count / cache_.block_tokens();
  if (full > request.published_blocks) {
    extend_prefix_chain(request);
    cache_.publish(request.prefix_chain, request.block_tables, request.published_blocks, full,
                   [&](int32_t group, int32_t position, cache::BlockId block) {
                     if (journal_ != nullptr) journal_->stored(request, group, position, block);
                   });
    request.published_blocks = full;
  }
  if (states_.wanted()) name_state(request, /*leaves=*/false);
}

void Scheduler::set_computed(Request& request, int32_t count) {
  request.computed_count = count;
  request.prompt_done_count = std::max(request.prompt_done_count, std::min(count, request.prompt_count));
}

void Scheduler::extend_prefix_chain(Request& request) {
  const bool activated = request.activation_token > 0;
  request.prefix_chain.extend(cache_.hasher(),
                              {.root = *request.prefix_root,
                               .activation_token = request.activation_token,
                               .activated_root = activated ? *request.activated_root : cache::PrefixRoot{}},
                              request.tokens, cache_.block_tokens());
}

int32_t Scheduler::commit(Request& request, std::span<const int32_t> accepted, int32_t guessed) {
  CHORAL_CHECK(request.status == RequestStatus::kRunning && !request.in_flight && request.remaining() == 0,
               "tokens are accepted for a running request whose tokens are all computed");
  CHORAL_CHECK(std::ssize(accepted) <= request.max_length - request.token_count(),
               "a request at its length limit must be finished");
  share(request);
  request.tokens.insert(request.tokens.end(), accepted.begin(), accepted.end());
  request.last_progress_step = step_;
  FairShare::charge(request.share, kOutputWeight * std::ssize(accepted));
  if (guessed == 0) return 0;
  const auto guesses = request.guessed().first(guessed);
  const auto right = static_cast<int32_t>(std::mismatch(guesses.begin(), guesses.end(), accepted.begin(), accepted.end()).first -
                                          guesses.begin());
  if (!states_.wanted() || take_state_behind_guesses(request, right == guessed)) {
    // Of an answer that ends with a guess the row of the guess was not looked at.
    const auto seen = static_cast<int32_t>(std::ssize(accepted)) - 1;
    set_computed(request, request.computed_count + std::clamp(right, 0, std::max(seen, 0)));
    if (right > 0) share(request);
  }
  const int64_t held = cache_.truncate(request.block_tables, request.computed_count);
  CHORAL_CHECK(held == request.computed_count, "what did not come true is cut off, and no more");
  return right;
}

void Scheduler::finish(Request& request, FinishReason reason) {
  CHORAL_CHECK(reason != FinishReason::kNone, "a request finishes for a reason");
  if (request.finished()) return;
  if (request.status == RequestStatus::kRunning) {
    running_.erase(std::find(running_.begin(), running_.end(), &request));
    leave_running(request);
  } else {
    waiting_.remove(request);
  }
  request.status = RequestStatus::kFinished;
  request.finish_reason = reason;
  shares_.leave(request.adapter_key);
  request.share = nullptr;
  if (promoted_ == &request) promoted_ = nullptr;
  if (!request.in_flight) retire(request);
}

std::unique_ptr<Request> Scheduler::withdraw(Request& request) {
  CHORAL_CHECK(request.status == RequestStatus::kWaiting && !request.admitted_before,
               "only a request that never ran is withdrawn");
  waiting_.remove(request);
  shares_.leave(request.adapter_key);
  request.share = nullptr;
  if (promoted_ == &request) promoted_ = nullptr;
  request.promoted = false;
  request.prefix_chain = {};
  const auto owner = requests_.find(request.id);
  auto out = std::move(owner->second);
  requests_.erase(owner);
  return out;
}

bool Scheduler::cancel(RequestId id) {
  Request* request = find(id);
  if (request == nullptr) return false;
  finish(*request, FinishReason::kCancelled);
  return true;
}

void Scheduler::retire(Request& request) {
  if (states_.wanted()) name_state(request, /*leaves=*/true);
  cache_.release(request.block_tables);
  give_states_back(request);
  if (request.holds_adapter) gate_->release(request);
  request.holds_adapter = false;
  const auto owner = requests_.find(request.id);
  finished_.push_back(std::move(owner->second));
  requests_.erase(owner);
}

void Scheduler::take_finished(std::vector<std::unique_ptr<Request>>& out) {
  for (std::unique_ptr<Request>& request : finished_) out.push_back(std::move(request));
  finished_.clear();
}

Request* Scheduler::find(RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() || found->second->finished() ? nullptr : found->second.get();
}

}  // namespace choral::sched
