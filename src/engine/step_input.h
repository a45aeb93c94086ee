// What the worker is told of a step: values only, so that it may cross to another thread, process or machine. The worker keeps a
// copy of each request (its tokens, its blocks, how its tokens are chosen); a step says what is new. Reused every step; after
// reserve() a steady-state step allocates nothing.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/kv_groups.h"
#include "engine/pooling.h"
#include "engine/sampling_rule.h"
#include "kernels/recurrent/state_run.h"
#include "lora/plan/lora_segment.h"

namespace choral::engine {

// A request, before its first step.
struct NewRequest {
  uint64_t id = 0;
  std::vector<int32_t> prompt;
  int32_t max_length = 0;  // prompt and outputs
  SamplingRule rule;
  Pooling pooling = Pooling::kNone;
};

// How the worker's copy of a list becomes the present one: it keeps the first `kept` and `count` values follow, which are those
// from `begin` on of the step's list of such values. Growth, a cut and a list made anew are all said so.
struct ListUpdate {
  int32_t kept = 0;
  int32_t begin = 0;
  int32_t count = 0;
};

// Of one request in a step, rows that give a token: the last known one, and guesses behind it.
inline constexpr int32_t kMostLogitsRows = 13;

// The rows of one request: its tokens from position first_token on.
struct StepItem {
  uint64_t id = 0;
  int32_t first_token = 0;
  int32_t token_count = 0;
  int32_t first_row = 0;     // of the flat batch
  int32_t logits_count = 0;  // the last so many rows each give the token that follows theirs
  // Positions whose logits speak of a prompt token, the next one, whose log-probabilities are wanted.
  int32_t prompt_logprobs_begin = 0;
  int32_t prompt_logprobs_count = 0;
  int32_t row_logits_count = 0;  // the last so many rows each give all their logits
  bool wants_embedding = false;  // by the request's pooling; of the rows so far, whose last is the prompt's
  // Of each row that gives a token, one after another: `mask_words` of StepInput::mask_words from mask_begin on, which say by
  // bits which tokens it may be (kernels::apply_token_mask). 0: any.
  int32_t mask_begin = 0;
  int32_t mask_words = 0;
  ListUpdate tokens;  // prompt and outputs, of StepInput::token_ids
};

struct StepInput {
  std::vector<uint64_t> dropped;              // will not come again; the worker may never have heard of one
  std::vector<StepItem> items;                // in the order of their rows
  std::vector<lora::LoRASegment> segments;    // ids are those of Executor::add_adapter(); rows in none are the base's
  std::vector<ListUpdate> block_updates;      // of each item its block tables', one of each group of layers
  std::vector<int32_t> token_ids, block_ids;  // what these and the items' updates speak of
  std::vector<uint32_t> mask_words;           // what their masks speak of
  std::vector<kernels::StateRun> state_runs;  // of the rows, in their order, where the model has layers that keep a state
  int32_t total_tokens = 0;                   // rows
  bool has_prefill = false;                   // some rows are not a token that was sampled last

  void reserve(int64_t max_items, int64_t max_tokens) {
    items.reserve(max_items);
    segments.reserve(max_items);
    dropped.reserve(max_items);
    block_updates.reserve(max_items * cache::kMostGroups);
    state_runs.reserve(3 * max_items);
    token_ids.reserve(max_tokens);
    block_ids.reserve(max_tokens);
  }
  // Of the items[i]'s block tables.
  std::span<const ListUpdate> block_updates_of(size_t i) const {
    const size_t groups = block_updates.size() / items.size();
    CHORAL_CHECK(groups * items.size() == block_updates.size(), "each item brings its block table of each group of layers");
    return std::span(block_updates).subspan(i * groups, groups);
  }
  std::span<const int32_t> token_ids_of(const ListUpdate& update) const { return values(token_ids, update); }
  std::span<const int32_t> block_ids_of(const ListUpdate& update) const { return values(block_ids, update); }
  // Of the i-th row of the item that gives a token; empty: any token.
  std::span<const uint32_t> mask_of(const StepItem& item, int32_t i) const {
    const int64_t begin = item.mask_begin + int64_t{i} * item.mask_words;
    CHORAL_CHECK(item.mask_begin >= 0 && item.mask_words >= 0 && i >= 0 && begin + item.mask_words <= std::ssize(mask_words),
                 "a mask is of words that the step does not bring");
    return std::span(mask_words).subspan(begin, item.mask_words);
  }

 private:
  static std::span<const int32_t> values(const std::vector<int32_t>& all, const ListUpdate& update) {
    CHORAL_CHECK(update.begin >= 0 && update.count >= 0 && int64_t{update.begin} + update.count <= std::ssize(all),
                 "an update speaks of values that the step does not bring");
    return std::span(all).subspan(update.begin, update.count);
  }
};

}  // namespace choral::engine
