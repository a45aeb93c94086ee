// What one step gives back, as values. For each item of the StepInput: its tokens (several when it wanted several) with their
// log-probabilities, those of its prompt, and rows of logits where they were wanted. Reused every step; room is reserved for the
// largest batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "choral/types.h"
#include "engine/step_input.h"
#include "kernels/sampling/sampling.h"

namespace choral::engine {

struct SampledToken {
  int32_t token = -1;  // -1: `status` says why there is none
  float logprob = 0;
  int32_t top_begin = 0, top_count = 0;  // of StepOutput::top
  Status status;
};

// How much of StepOutput's lists is an item's; items have theirs one after another.
struct ItemOutput {
  int32_t token_count = 0;
  int32_t prompt_logprobs_count = 0;
  int32_t row_logits_count = 0;  // rows
  int32_t row_logits_width = 0;  // the vocabulary, with the tokens that the item's adapter brings
  int32_t embedding_width = 0;
  bool is_sound = true;  // of one without tokens, whose status would say so: what was computed holds no NaN or infinity
};

struct StepOutput {
  std::vector<ItemOutput> items;  // one for each of the input
  std::vector<SampledToken> tokens;
  std::vector<kernels::TokenLogprob> top;         // most likely tokens, best first, as many as each request asked for
  std::vector<PositionLogprobs> prompt_logprobs;  // in the order of positions
  std::vector<float> row_logits;                  // [row_logits_count, row_logits_width] of each item, untouched
  std::vector<float> embeddings;                  // [embedding_width] of each item, of any length
  int64_t host_copies = 0;                        // Session::host_copies() when the step ended
  int64_t host_copied_bytes = 0;                  // and Session::host_copied_bytes()

  void reserve(int64_t max_items) {
    items.reserve(max_items);
    tokens.reserve(max_items * kMostLogitsRows);
  }
  void clear() {
    items.clear();
    tokens.clear();
    top.clear();
    prompt_logprobs.clear();
    row_logits.clear();
    embeddings.clear();
  }
  std::span<const kernels::TokenLogprob> top_of(const SampledToken& token) const {
    return std::span(top).subspan(token.top_begin, token.top_count);
  }
};

}  // namespace choral::engine
