// What one step of the model runs: which tokens of which requests, in the order of the flat batch's rows. Items are grouped by
// adapter key, ascending (base first). Inside a group decode rows come before prefill chunks, by urgency. A chunk that ends
// before its adapter's activation is the base's. A chunk across it is the adapter's, with base_tokens rows of the base in front;
// the segments record that.
// One object is reused for every step; after reserve() filling it allocates nothing. The Request pointers stay valid until the
// first Scheduler::take_finished() after the step's on_computed().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/plan/lora_segment.h"
#include "sched/request.h"

namespace choral::sched {

struct PlanItem {
  Request* request = nullptr;
  int32_t first_token = 0;  // position of the first token to compute
  int32_t token_count = 0;
  int32_t first_row = 0;               // of the flat batch
  int32_t base_tokens = 0;             // so many leading rows are the base's (before activation_token, or no adapter at all)
  bool needs_logits = false;           // the last known token is in it: its logits give the next token
  int32_t new_prompt_tokens = 0;       // prompt tokens that no earlier step had: from request->prompt_done_count on
  bool needs_prompt_logprobs = false;  // wanted, and some of its prompt tokens are new
  bool is_decode = false;              // just the one token sampled last
  int32_t draft_count = 0;             // the last so many tokens are guesses, and each gives one too
  int32_t known_count() const { return token_count - draft_count; }
  // Where layers keep a state: the rows begin with that of state_from (kNoSlot: of nothing). That behind the first kept_rows of
  // them, if any, goes to kept_slot, that behind the other known ones, if any, to the request's own, and that behind guesses to
  // its guess_slot.
  int32_t state_from = cache::kNoSlot, kept_slot = cache::kNoSlot;
  int32_t kept_rows = 0;
};

class StepPlan {
 public:
  void reserve(int32_t max_items);
  void clear();

  bool empty() const { return items_.empty(); }
  std::span<const PlanItem> items() const { return items_; }
  std::span<PlanItem> items() { return items_; }
  // The adapters' rows, ascending; ids are adapter keys. Rows in none are the base's.
  std::span<const lora::LoRASegment> segments() const { return segments_; }
  int32_t total_tokens() const { return total_tokens_; }
  int32_t decode_tokens() const { return decode_tokens_; }
  int32_t prefill_tokens() const { return total_tokens_ - decode_tokens_; }  // those of preempted requests again and again
  int32_t new_prompt_tokens() const { return new_prompt_tokens_; }           // each prompt token once

  // The scheduler's side: add the items in order of urgency, then group().
  PlanItem& add(Request& request, int32_t token_count);
  // … and, to an item with the last known token, the first `count` of the request's guesses.
  void add_draft(PlanItem& item, int32_t count);
  void group();

 private:
  void add_to_segments(const PlanItem& item);

  std::vector<PlanItem> items_;
  std::vector<lora::LoRASegment> segments_;
  int32_t total_tokens_ = 0;
  int32_t decode_tokens_ = 0;
  int32_t new_prompt_tokens_ = 0;
};

}  // namespace choral::sched
