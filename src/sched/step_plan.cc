#include "sched/step_plan.h"

#include <algorithm>

#include "base/check.h"

namespace choral::sched {

void StepPlan::reserve(int32_t max_items) {
  items_.reserve(max_items);
  segments_.reserve(max_items);
}

void StepPlan::clear() {
  items_.clear();
  segments_.clear();
  total_tokens_ = 0;
  decode_tokens_ = 0;
  new_prompt_tokens_ = 0;
}

PlanItem& StepPlan::add(Request& request, int32_t token_count) {
  CHORAL_CHECK(token_count > 0 && token_count <= request.remaining(), "a planned chunk must lie inside the known tokens");
  PlanItem item;
  item.request = &request;
  item.first_token = request.computed_count;
  item.token_count = token_count;
  item.first_row = static_cast<int32_t>(items_.size());  // order of urgency until group()
  item.needs_logits = token_count == request.remaining();
  const int32_t prompt_end = std::min(item.first_token + token_count, request.prompt_count);
  item.new_prompt_tokens = std::max(0, prompt_end - std::max(item.first_token, request.prompt_done_count));
  item.needs_prompt_logprobs = request.wants_prompt_logprobs && item.new_prompt_tokens > 0;
  item.is_decode = token_count == 1 && item.needs_logits && item.first_token >= request.prompt_count;
  item.base_tokens =
      request.adapter_key == kBaseKey ? token_count : std::clamp(request.activation_token - item.first_token, 0, token_count);
  items_.push_back(item);
  total_tokens_ += token_count;
  new_prompt_tokens_ += item.new_prompt_tokens;
  if (item.is_decode) ++decode_tokens_;
  return items_.back();
}

void StepPlan::add_draft(PlanItem& item, int32_t count) {
  CHORAL_CHECK(item.is_decode && count > 0 && count <= item.request->guess_count, "guesses follow the token sampled last");
  item.is_decode = false;
  --decode_tokens_;
  item.draft_count = count;
  item.token_count += count;
  if (item.base_tokens > 0) item.base_tokens = item.token_count;  // what is sampled lies behind any activation
  total_tokens_ += count;
}

void StepPlan::group() {
  const auto key = [](const PlanItem& item) {
    return item.base_tokens == item.token_count ? kBaseKey : item.request->adapter_key;
  };
  const auto as_number = [](AdapterKey k) { return static_cast<uint32_t>(k.value()); };  // the base first, whatever the keys
  // first_row breaks ties, so the unstable sort is stable, and unlike std::stable_sort it needs no memory.
  std::sort(items_.begin(), items_.end(), [&](const PlanItem& a, const PlanItem& b) {
    if (key(a) != key(b)) return as_number(key(a)) < as_number(key(b));
    return a.first_row < b.first_row;
  });
  int32_t row = 0;
  for (PlanItem& item : items_) {
    item.first_row = row;
    row += item.token_count;
    add_to_segments(item);
  }
}

void StepPlan::add_to_segments(const PlanItem& item) {
  const int32_t count = item.token_count - item.base_tokens;
  if (count == 0) return;
  const int64_t start = int64_t{item.first_row} + item.base_tokens;
  if (!segments_.empty()) {
    lora::LoRASegment& last = segments_.back();
    if (last.key == item.request->adapter_key && last.start + last.length == start) {
      last.length += count;
      return;
    }
  }
  segments_.push_back({start, count, item.request->adapter_key});
}

}  // namespace choral::sched
