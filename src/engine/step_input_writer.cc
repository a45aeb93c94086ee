#include "engine/step_input_writer.h"

#include <algorithm>

namespace choral::engine {
namespace {

// The values of `list` behind the first `kept`, appended to `all`.
ListUpdate add_tail(std::span<const int32_t> list, int32_t kept, std::vector<int32_t>& all) {
  const auto begin = static_cast<int32_t>(all.size());
  all.insert(all.end(), list.begin() + kept, list.end());
  return {kept, begin, static_cast<int32_t>(list.size()) - kept};
}

size_t word_of(int32_t token) { return static_cast<size_t>(token) / 32; }

void keep_only(int32_t token, std::span<uint32_t> mask) {
  const uint32_t bit = 1U << (static_cast<uint32_t>(token) % 32);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] &= i == word_of(token) ? bit : 0;
}

}  // namespace

const StepInput& StepInputWriter::write(const sched::StepPlan& plan) {
  input_.items.clear();
  input_.block_updates.clear();
  input_.token_ids.clear();
  input_.block_ids.clear();
  input_.mask_words.clear();
  input_.state_runs.clear();
  for (const auto& item : plan.items()) add(item);
  input_.segments.assign(plan.segments().begin(), plan.segments().end());
  input_.total_tokens = plan.total_tokens();
  input_.has_prefill = plan.prefill_tokens() > 0;
  input_.dropped.clear();  // last of all: once written it is said
  input_.dropped.swap(dropped_);
  return input_;
}

void StepInputWriter::forget(const EngineRequest& request) {
  if (request.introduced) dropped_.push_back(request.id);
}

NewRequest StepInputWriter::introduction(EngineRequest& request) {
  const auto prompt = request.prompt();
  return {request.id, {prompt.begin(), prompt.end()}, request.max_length, std::move(request.rule), request.pooling};
}

void StepInputWriter::introduced(EngineRequest& request) {
  request.introduced = true;
  request.told_tokens = request.prompt_count;
}

void StepInputWriter::add(const sched::PlanItem& item) {
  auto& request = static_cast<EngineRequest&>(*item.request);
  CHORAL_CHECK(request.introduced, "a step has a request that the worker was never told of");
  StepItem out;
  out.id = request.id;
  out.first_token = item.first_token;
  out.token_count = item.token_count;
  out.first_row = item.first_row;
  out.wants_embedding = item.needs_logits && request.pooling != Pooling::kNone;
  out.logits_count = item.needs_logits && !out.wants_embedding ? 1 + item.draft_count : 0;
  if (item.needs_prompt_logprobs) {
    // The last prompt token's logits speak of an output. What a preempted request computes again has been said.
    const int32_t end = std::min(item.first_token + item.token_count, request.prompt_count - 1);
    out.prompt_logprobs_begin = std::max(item.first_token, request.prompt_done_count);
    out.prompt_logprobs_count = std::max(0, end - out.prompt_logprobs_begin);
  }
  if (request.wants_row_logits) out.row_logits_count = item.token_count;
  if (out.logits_count > 0) add_mask(request, out);
  out.tokens = add_tail(request.tokens, request.told_tokens, input_.token_ids);
  const auto guesses = request.guessed().first(item.draft_count);
  input_.token_ids.insert(input_.token_ids.end(), guesses.begin(), guesses.end());
  out.tokens.count += item.draft_count;  // which the next step's tokens take the place of
  for (auto& table : request.block_tables) {
    input_.block_updates.push_back(add_tail(table.ids(), table.unchanged(), input_.block_ids));
    table.mark_read();
  }
  if (request.state_slot != cache::kNoSlot) add_state_runs(item);
  request.told_tokens = request.token_count();
  input_.items.push_back(out);
}

void StepInputWriter::add_state_runs(const sched::PlanItem& item) {
  static_assert(cache::kNoSlot == kernels::kNoState);
  int32_t from = item.state_from;
  if (item.kept_rows > 0) {
    input_.state_runs.push_back({item.first_row, item.kept_rows, from, item.kept_slot});
    from = item.kept_slot;
  }
  if (const int32_t others = item.known_count() - item.kept_rows; others > 0) {
    input_.state_runs.push_back({item.first_row + item.kept_rows, others, from, item.request->state_slot});
    from = item.request->state_slot;
  }
  if (item.draft_count > 0)
    input_.state_runs.push_back({item.first_row + item.known_count(), item.draft_count, from, item.request->guess_slot});
}

void StepInputWriter::add_mask(const EngineRequest& request, StepItem& item) {
  auto& words = input_.mask_words;
  const auto begin = words.size();
  const int32_t rows = item.logits_count;
  const bool is_forced = request.thoughts && request.thoughts->forced() != ThoughtBudget::kAny;
  if (request.grammar != nullptr) {
    for (int32_t row = 0; row < rows; ++row) {
      const auto mask = request.grammar->mask(row);
      words.insert(words.end(), mask.begin(), mask.end());
    }
    // What the grammar forbids stays so; then no token is left, and the answer ends with an error.
    if (is_forced) keep_only(request.thoughts->forced(), std::span(words).subspan(begin));
  } else if (is_forced) {
    size_t width = 0;
    for (int32_t row = 0; row < rows; ++row) width = std::max(width, word_of(request.thoughts->forced(row)) + 1);
    words.resize(begin + width * static_cast<size_t>(rows), ~0U);
    for (int32_t row = 0; row < rows; ++row)
      keep_only(request.thoughts->forced(row), std::span(words).subspan(begin + width * static_cast<size_t>(row), width));
  }
  item.mask_begin = static_cast<int32_t>(begin);
  item.mask_words = static_cast<int32_t>(words.size() - begin) / rows;
}

}  // namespace choral::engine
