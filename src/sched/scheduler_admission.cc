// Who is let in: what a request must fit to be queued, and what a waiting one needs to run.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace choral::sched {
namespace {

// A request waits for a prefix that another is computing when it saves at least so many blocks; fewer are not worth a step's
// delay.
constexpr int32_t kWorthWaitingBlocks = 4;
// Requests that wait for a place and have their adapters fetched meanwhile.
constexpr int32_t kMostFetchedAhead = 16;

}  // namespace

Status Scheduler::check_fits(const Request& request) const {
  const int32_t least_output = std::min(request.max_tokens, 1);
  const auto most_prompt = static_cast<size_t>(config_.max_model_len - least_output);
  CHORAL_CHECK(request.given_count >= 0 && request.given_count <= request.token_count(), "more outputs are given than tokens");
  const auto prompt_tokens = static_cast<size_t>(request.token_count() - request.given_count);
  if (prompt_tokens == 0) return invalid_argument("the prompt has no tokens; send at least one");
  if (request.activation_token < 0 || static_cast<size_t>(request.activation_token) > prompt_tokens) {
    return invalid_argument("the adapter is activated at token {}, the prompt has {}", request.activation_token, prompt_tokens);
  }
  if (request.activation_token > 0 && request.prefix_root && !request.activated_root) {
    return internal_error("a request whose adapter is activated at token {} has no prefix root from there on",
                          request.activation_token);
  }
  if ((request.adapter_key == kBaseKey) != request.adapter_ids.empty()) {
    return internal_error("a request of adapter key {} has {} adapters", request.adapter_key.value(), request.adapter_ids.size());
  }
  if (config_.max_loras > 0 && request.adapter_ids.size() > static_cast<size_t>(config_.max_loras)) {
    return invalid_argument("the request mixes {} adapters, max_loras allows {} in one step; mix fewer or raise max_loras",
                            request.adapter_ids.size(), config_.max_loras);
  }
  if (request.width() > config_.max_num_seqs) {
    return invalid_argument(
        "the request wants {} beams, and a step has at most {} sequences; send a smaller beam_width or raise --max-num-seqs "
        "(in the library max_num_seqs)",
        request.width(), config_.max_num_seqs);
  }
  if (!request.followers.empty() && states_.wanted()) {
    return unsupported(
        "beam search of several beams needs what is computed of an answer to be shared between them, and layers of this model "
        "keep a state of its text instead; leave use_beam_search out");
  }
  if (request.max_tokens < 0) return invalid_argument("max_tokens is {}, it must be at least 0", request.max_tokens);
  if (prompt_tokens > most_prompt) {
    return too_large("the prompt has {} tokens; with max_model_len = {} at most {} are possible; shorten it", prompt_tokens,
                     config_.max_model_len, most_prompt);
  }
  if (request.given_count > request.max_tokens) {
    return invalid_argument("{} tokens of the answer are given, max_tokens allows {}", request.given_count, request.max_tokens);
  }
  // The last output is never fed back, so it needs no place in the cache.
  const int64_t most_tokens =
      std::min<int64_t>(static_cast<int64_t>(prompt_tokens) + request.max_tokens, config_.max_model_len) - least_output;
  const int64_t blocks =
      cache_.most_blocks(most_tokens) + blocks_for_followers(request, static_cast<int64_t>(prompt_tokens), most_tokens);
  if (blocks > cache_.block_count() && !request.followers.empty()) {
    return too_large(
        "{} beams with a prompt of {} tokens and max_tokens {} need {} KV blocks of {} tokens, the cache has {}; send a smaller "
        "beam_width, shorten the prompt, lower max_tokens or give the KV cache more memory",
        request.width(), prompt_tokens, request.max_tokens, blocks, cache_.block_tokens(), cache_.block_count());
  }
  if (blocks > cache_.block_count()) {
    return too_large(
        "prompt ({} tokens) and max_tokens ({}) need {} KV blocks of {} tokens, the cache has {}; shorten the prompt, lower "
        "max_tokens or give the KV cache more memory",
        prompt_tokens, request.max_tokens, blocks, cache_.block_tokens(), cache_.block_count());
  }
  return {};
}

void Scheduler::make_room_for_blocks(Request& r) const {
  r.block_tables.resize(cache_.groups());
  for (auto& table : r.block_tables) table.reserve(cache_.blocks_for(r.max_length));
}

Status Scheduler::make_room_for(Request& r) const {
  CHORAL_RETURN_IF_ERROR(check_fits(r));
  r.prompt_count = r.token_count() - r.given_count;
  r.max_length = static_cast<int32_t>(std::min<int64_t>(int64_t{r.prompt_count} + r.max_tokens, config_.max_model_len));
  r.tokens.reserve(r.max_length);
  make_room_for_blocks(r);
  for (const auto& follower : r.followers) {
    follower->leader = &r;
    follower->max_length = r.max_length;
    follower->tokens.reserve(r.max_length);
    make_room_for_blocks(*follower);
  }
  if (cache_.prefix_caching() && r.prefix_root) r.prefix_chain.reserve(cache_.blocks_for(r.max_length));
  return {};
}

Status Scheduler::add(std::unique_ptr<Request>&& request) {
  CHORAL_CHECK(request != nullptr, "add() needs a request");
  CHORAL_RETURN_IF_ERROR(make_room_for(*request));
  if (requests_.contains(request->id)) return already_exists("request id {} is in use", request->id);
  if (waiting_.size() >= config_.max_waiting) {
    return resource_exhausted(
        "{} requests are waiting, the queue's limit (--max-num-queued-reqs; in the library max_waiting); try again later",
        waiting_.size());
  }
  Request& r = *request;
  r.status = RequestStatus::kWaiting;
  note_arrival(r);
  if (cache_.prefix_caching() && r.prefix_root) extend_prefix_chain(r);
  r.share = shares_.join(r.adapter_key, r.adapter_ids);
  requests_.emplace(r.id, std::move(request));
  waiting_.push(r);
  return {};
}

void Scheduler::plan_waiting(StepPlan& plan) {
  if (gate_ != nullptr) gate_->begin_round();
  refusals_.clear();
  const bool draining = admit_waiting(plan);
  count_overtaking();
  if (gate_ != nullptr && !draining) prefetch_waiting();
}

// Whether somebody is waited for until adapters leave.
bool Scheduler::admit_waiting(StepPlan& plan) {
  bool draining = false;
  while (running_count() < config_.max_num_seqs && budget_left(plan) > 0) {
    Request* request = waiting_.next(step_);
    if (request == nullptr) break;
    if (draining && !may_pass_drain(*request)) {
      request->deferred_step = step_;
      if (request->adapter_key != kBaseKey) request->share->deferred_step = step_;
      continue;
    }
    switch (try_admit(*request, plan)) {
      case Admission::kAdmitted: break;
      case Admission::kDeferred: break;
      case Admission::kNoAdapterRoom:
        if (!request->promoted && request->share->overtaken < config_.most_overtaking) break;
        draining = true;
        holders_wait_ = std::any_of(waiting_.requests().begin(), waiting_.requests().end(),
                                    [](const Request* other) { return other->holds_adapter; });
        ++stats_.adapter_drains;
        break;
      case Admission::kNoRoom:
        lacks_room_ = !request->in_background;
        return draining;  // nobody slips past: the first in the queue would starve
    }
  }
  if (running_count() == config_.max_num_seqs) {
    const Request* next = waiting_.next(step_);
    lacks_room_ = next != nullptr && !next->in_background;
  }
  return draining;
}

// Who took adapters after somebody was refused his came later in the order.
void Scheduler::count_overtaking() {
  for (const Refusal& refusal : refusals_) refusal.share->overtaken += adapters_taken_ - refusal.taken_before;
}

// The next in the order, as long as each has room.
void Scheduler::prefetch_waiting() {
  for (int32_t i = 0; i < kMostFetchedAhead; ++i) {
    Request* request = waiting_.take_candidate(step_);
    if (request == nullptr) return;
    const bool needs_none = request->adapter_key == kBaseKey || request->holds_adapter;
    if (!needs_none && !gate_->prefetch(*request)) return;
  }
}

Scheduler::Admission Scheduler::try_admit(Request& request, StepPlan& plan) {
  if (request.sits_out) {
    request.deferred_step = step_;
    return Admission::kDeferred;
  }
  if (exceeds_max_loras(request)) return defer_adapter(request, Admission::kNoAdapterRoom);
  cache::PrefixMatch match;
  // Prompt logprobs need the logits of every prompt token, so every one is computed.
  const bool takes_prefix = !request.wants_prompt_logprobs && !request.computes_all;
  if (takes_prefix) {
    match = find_prefix(request);
    if (shares_pending_prefix(request, match.blocks)) {
      request.deferred_step = step_;
      ++stats_.deferrals;
      return Admission::kDeferred;
    }
  }
  if (running_count() + request.width() > config_.max_num_seqs) return Admission::kNoRoom;
  // Found blocks without holder are free blocks too until they are adopted. Followers come with the next token, if one is
  // computed.
  const int64_t needed =
      cache_.blocks_to_begin(match, request.token_count()) +
      blocks_for_followers(request, request.prompt_count, std::min(request.token_count() + 1, request.max_length - 1));
  const int32_t kept_free = running_.empty() ? 0 : watermark_blocks_;
  if (needed + kept_free > cache_.free_blocks()) return Admission::kNoRoom;
  if (states_.wanted() && states_.free_count() == 0) return Admission::kNoRoom;
  const int32_t adopted = state_behind(request, match);
  const int32_t cached_tokens = match.blocks * cache_.block_tokens();
  if (!config_.enable_chunked_prefill && request.token_count() - cached_tokens > budget_left(plan)) return Admission::kNoRoom;
  // Last of all: what is held from here on is held by a request that runs.
  if (const Admission adapter = try_adapter(request); adapter != Admission::kAdmitted) return adapter;

  if (request.adapter_key != kBaseKey) {
    ++adapters_taken_;
    request.share->overtaken = 0;
  }
  waiting_.remove(request);
  cache_.adopt_prefix(request.prefix_chain, match, request.block_tables);
  CHORAL_CHECK(cache_.grow(request.block_tables, cached_tokens, request.token_count()), "free KV blocks were miscounted");
  if (states_.wanted()) begin_state(request, adopted, cached_tokens);
  request.status = RequestStatus::kRunning;
  set_computed(request, cached_tokens);
  request.published_blocks = match.blocks;
  if (!request.admitted_before) {
    request.admitted_before = true;
    request.cached_prompt_tokens = std::min(cached_tokens, request.prompt_count);
    if (cache_.prefix_caching() && request.prefix_root && takes_prefix) {
      cache_.count_query(request.token_count(), cached_tokens);
    }
    FairShare::charge(request.share, kInputWeight * (request.token_count() - cached_tokens));
  }
  const auto place = std::upper_bound(running_.begin(), running_.end(), &request,
                                      [this](const Request* a, const Request* b) { return more_urgent(*a, *b, config_.policy); });
  const auto placed = running_.insert(place, &request);
  enter_running(request);
  if (!request.followers.empty()) add_followers(request, placed + 1);
  plan_chunk(request, plan);
  return Admission::kAdmitted;
}

Scheduler::Admission Scheduler::try_adapter(Request& request) {
  if (gate_ == nullptr || request.adapter_key == kBaseKey || request.holds_adapter) return Admission::kAdmitted;
  switch (gate_->acquire(request)) {
    case Residency::kResident: request.holds_adapter = true; return Admission::kAdmitted;
    case Residency::kLoading: return defer_adapter(request, Admission::kDeferred);
    case Residency::kNoRoom: return defer_adapter(request, Admission::kNoAdapterRoom);
    case Residency::kFailed: break;
  }
  request.adapter_failed = true;
  ++stats_.adapter_failures;
  finish(request, FinishReason::kError);
  return Admission::kDeferred;
}

bool Scheduler::may_pass_drain(const Request& request) const {
  // Whoever was preempted with its adapter must go on: only its end gives the adapter back.
  if (request.holds_adapter) return true;
  if (request.adapter_key != kBaseKey || holders_wait_) return false;
  // A base request takes no adapter, and one that is less urgent than all who have one never takes their blocks.
  return std::none_of(running_.begin(), running_.end(), [&](const Request* other) {
    return other->adapter_key != kBaseKey && more_urgent(request, *other, config_.policy);
  });
}

Scheduler::Admission Scheduler::defer_adapter(Request& request, Admission why) {
  request.deferred_step = step_;
  // The others of this adapter would get the same answer; those that hold it are not concerned.
  if (!request.holds_adapter) {
    request.share->deferred_step = step_;
    refusals_.push_back({request.share, adapters_taken_});
  }
  ++stats_.adapter_waits;
  return why;
}

bool Scheduler::exceeds_max_loras(const Request& request) const {
  if (config_.max_loras == 0) return false;
  int32_t more = 0;
  for (const ShareAccount* account : request.share->accounts) {
    if (account->adapter != lora::kBaseAdapter && account->running_requests == 0) ++more;
  }
  return more > 0 && running_adapters_ + more > config_.max_loras;
}

bool Scheduler::shares_pending_prefix(const Request& request, int32_t cached_blocks) const {
  const int32_t last = cached_blocks + kWorthWaitingBlocks - 1;
  if (last >= std::min(request.prefix_chain.size(), (request.token_count() - 1) / cache_.block_tokens())) return false;
  // What an other offers: blocks, or states behind blocks, which it names at the end of its prompt at the latest.
  const auto may_offer = [&](const Request& other) {
    if (!states_.wanted()) return other.published_blocks <= cached_blocks;
    return other.computed_count < other.prompt_count && other.named_tokens / cache_.block_tokens() <= cached_blocks;
  };
  return std::any_of(running_.begin(), running_.end(), [&](const Request* other) {
    // Equal keys of block `last` mean equal blocks up to it. Published but not found: the content was dropped, nothing will come.
    // A less urgent request is not waited for: it may be slow.
    return may_offer(*other) && last < other->prefix_chain.size() && other->prefix_chain[last] == request.prefix_chain[last] &&
           more_urgent(*other, request, config_.policy);
  });
}

}  // namespace choral::sched
