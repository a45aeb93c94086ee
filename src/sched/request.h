// One request as the scheduler sees it: token ids and counts. A plain record. The caller fills the first part, Scheduler::add()
// checks it and reserves all room, and then only the Scheduler changes the second part. The engine derives from it to keep
// sampling parameters and the stream beside it. Ownership goes into the scheduler with add() and comes back by take_finished().
// Engine thread only, once added.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/block_table.h"
#include "cache/prefix_key.h"
#include "cache/state_slots.h"
#include "choral/types.h"
#include "lora/adapter_ids.h"

namespace choral::sched {

using RequestId = uint64_t;

enum class RequestStatus : uint8_t { kWaiting, kRunning, kPreempted, kFinished };
using choral::FinishReason;
using lora::AdapterId;
using lora::AdapterKey;
using lora::kBaseKey;

struct Share;  // sched/fair_share.h
struct Voice;  // sched/adapter_memory.h

struct Request {
  virtual ~Request() = default;

  // --- filled by the caller before add() ---
  RequestId id = 0;                    // unique among unfinished requests
  std::vector<int32_t> tokens;         // the prompt; outputs are appended
  int32_t given_count = 0;             // the last so many of them are outputs already, which the caller brought
  int32_t max_tokens = 16;             // outputs wanted at most; the model's length ends a request too. 0: only the prompt counts
  int32_t priority = 0;                // lower = more urgent; only with Policy::kPriority
  bool in_background = false;          // less urgent than all that are not; never promoted
  AdapterKey adapter_key;              // rows of one step are grouped by it
  std::vector<AdapterId> adapter_ids;  // the distinct adapters behind that key; none: the base
  int32_t activation_token = 0;        // tokens before this position are the base's (aLoRA); at most the prompt's length
  bool wants_prompt_logprobs = false;  // every prompt token is computed: no cached prefix is used
  bool computes_all = false;           // the same for another reason
  int32_t predicted_count = 0;         // tokens that it brings beside its prompt, which no step computes
  bool sits_out = false;               // in no step until the caller takes it back; changed between steps
  // Guesses of the tokens behind the known ones: computed beside the last of these where a step has room. Fewer than max_length
  // leaves room for. commit() keeps those that came true, and the others are forgotten; changed between steps.
  static constexpr int32_t kMostGuesses = 12;
  std::array<int32_t, kMostGuesses> guesses = {};
  int32_t guess_count = 0;
  std::optional<cache::PrefixRoot> prefix_root;  // names the KV's origin; nullopt: shares nothing with anybody
  // With activation_token > 0, prefix_root is the base's and this one the adapter's.
  std::optional<cache::PrefixRoot> activated_root;
  // Its branches beside itself: a group, whose members run at the same time or not at all (Scheduler::branch()). They are given
  // an id and nothing else, and never waited for, found or taken by themselves. Of a group no more than the prompt is shared.
  std::vector<std::unique_ptr<Request>> followers;

  // --- kept by the scheduler ---
  RequestStatus status = RequestStatus::kWaiting;
  FinishReason finish_reason = FinishReason::kNone;
  uint64_t arrival = 0;  // order of the first add(); 0 = not added yet
  int32_t prompt_count = 0;
  int32_t max_length = 0;            // prompt + outputs, never more than the model's length
  int32_t computed_count = 0;        // tokens whose KV is in the blocks; back to 0 on preemption
  int32_t prompt_done_count = 0;     // leading prompt tokens that were ever in the blocks; stays on preemption
  int32_t published_blocks = 0;      // leading blocks already offered to the prefix index
  bool is_distrusted = false;        // no further blocks are offered
  int32_t cached_prompt_tokens = 0;  // prompt tokens taken from the cache at first admission
  int32_t preemption_count = 0;
  bool adapter_failed = false;                  // ended (kError) by AdapterGate::acquire(): the engine tells the client why
  std::vector<cache::BlockTable> block_tables;  // of each group of layers
  // Of the layers that keep a state, places that it holds while it runs (cache/state_slots.h); kNoSlot: none.
  int32_t state_slot = cache::kNoSlot;  // its own
  int32_t state_from = cache::kNoSlot;  // where its state is: there, or in kept_slot, or in one that keeps an adopted prefix's
  int32_t kept_slot = cache::kNoSlot;   // its state behind kept_tokens, which are whole blocks
  int32_t guess_slot = cache::kNoSlot;  // its state behind the guesses of the step in flight
  int32_t kept_tokens = 0;              // 0: nothing sound
  int32_t named_tokens = 0;             // others find the state behind so many
  cache::PrefixChain prefix_chain;

  std::span<const int32_t> prompt() const { return std::span(tokens).first(prompt_count); }
  std::span<const int32_t> guessed() const { return std::span(guesses).first(guess_count); }
  std::span<const int32_t> output() const { return std::span(tokens).subspan(prompt_count); }
  int32_t token_count() const { return static_cast<int32_t>(tokens.size()); }
  int32_t output_count() const { return token_count() - prompt_count; }
  int32_t remaining() const { return token_count() - computed_count; }  // tokens to compute before the next can be sampled
  bool finished() const { return status == RequestStatus::kFinished; }
  // The request that a follower belongs to; of any other itself.
  Request& lead() { return leader == nullptr ? *this : *leader; }
  const Request& lead() const { return leader == nullptr ? *this : *leader; }
  int32_t width() const { return 1 + static_cast<int32_t>(followers.size()); }
  // Those of its tokens whose blocks others may find.
  std::span<const int32_t> shared_tokens() const { return followers.empty() ? std::span(tokens) : prompt(); }
  // The adapter under which the token at this position is computed.
  AdapterKey adapter_key_at(int32_t position) const { return position < activation_token ? kBaseKey : adapter_key; }
  bool at_length_limit() const { return token_count() >= max_length; }  // then the engine finishes it with kLength

  // --- the scheduler's own marks ---
  bool in_flight = false;  // in the plan between schedule() and on_computed()/abandon()
  bool admitted_before = false;
  bool promoted = false;            // waited too long: goes before everybody
  uint64_t last_progress_step = 0;  // when it came or got its last output token
  uint64_t deferred_step = 0;       // step in which it waits for another's prefix or for its adapter
  bool holds_adapter = false;       // from acquire() to release(), preemption included
  Share* share = nullptr;
  Request* leader = nullptr;  // of a follower
};

}  // namespace choral::sched
