#include "engine/response.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "engine/output_text.h"

namespace choral {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "abort";
    case FinishReason::kError: return "error";
  }
  return "";
}

namespace engine {
Response::Response(std::string id, std::vector<int32_t> prompt_token_ids, int completions, size_t expected_tokens,
                   bool with_logprobs)
    : id_(std::move(id)), cursors_(completions), open_(completions) {
  output_.id = id_;
  output_.prompt_token_ids = std::move(prompt_token_ids);
  output_.completions.resize(completions);
  for (int i = 0; i < completions; ++i) {
    auto& completion = output_.completions[i];
    completion.index = i;
    completion.token_ids.reserve(expected_tokens);
    completion.text.reserve(expected_tokens * kTextBytesPerToken);
    if (with_logprobs) completion.logprobs.reserve(expected_tokens);
  }
}

Completion* Response::open_completion(int index) {
  if (open_ == 0) return nullptr;
  auto& completion = output_.completions[index];
  return completion.finish_reason == FinishReason::kNone ? &completion : nullptr;
}

void Response::add_token(int index, int32_t token_id, std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->token_ids.push_back(token_id);
  completion->text += text;
  changed_.notify_all();
}

void Response::add_logprobs(int index, PositionLogprobs logprobs) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->cumulative_logprob += logprobs.chosen.logprob;
  completion->logprobs.push_back(std::move(logprobs));
}

void Response::add_text(int index, std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->text += text;
  changed_.notify_all();
}

void Response::add_prompt_logprobs(int32_t first_row, std::span<PositionLogprobs> logprobs) {
  const std::lock_guard lock(mutex_);
  CHORAL_CHECK(static_cast<size_t>(first_row) == output_.prompt_logprobs.size(),
               "a prompt's log-probabilities come in order, each once");
  output_.prompt_logprobs.insert(output_.prompt_logprobs.end(), std::make_move_iterator(logprobs.begin()),
                                 std::make_move_iterator(logprobs.end()));
}

void Response::finish(int index, FinishReason reason, std::string stop_reason, int cached_tokens, const RequestMetrics& metrics) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->finish_reason = reason;
  completion->stop_reason = std::move(stop_reason);
  output_.cached_tokens = std::max(output_.cached_tokens, cached_tokens);
  output_.metrics.queue_s = std::max(output_.metrics.queue_s, metrics.queue_s);
  output_.metrics.first_token_s = std::max(output_.metrics.first_token_s, metrics.first_token_s);
  output_.metrics.total_s = std::max(output_.metrics.total_s, metrics.total_s);
  --open_;
  changed_.notify_all();
}

void Response::fail(int index, Status status) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->finish_reason = FinishReason::kError;
  if (output_.status.ok()) output_.status = std::move(status);
  --open_;
  changed_.notify_all();
}

bool Response::has_news(size_t index) const {
  const auto& completion = output_.completions[index];
  const auto& cursor = cursors_[index];
  const bool finish = completion.finish_reason != FinishReason::kNone && !cursor.finish;
  return finish || completion.token_ids.size() > cursor.tokens || completion.text.size() > cursor.text;
}

bool Response::next(StreamEvent& event) {
  std::unique_lock lock(mutex_);
  for (;;) {
    for (size_t i = 0; i < cursors_.size(); ++i) {
      if (!has_news(i)) continue;
      auto& completion = output_.completions[i];
      auto& cursor = cursors_[i];
      event.index = static_cast<int>(i);
      event.text.assign(completion.text, cursor.text);
      event.token_ids.assign(completion.token_ids.begin() + static_cast<ptrdiff_t>(cursor.tokens), completion.token_ids.end());
      event.logprobs.assign(completion.logprobs.begin() + static_cast<ptrdiff_t>(cursor.logprobs), completion.logprobs.end());
      event.finish_reason = completion.finish_reason;
      cursor = {completion.text.size(), completion.token_ids.size(), completion.logprobs.size(),
                completion.finish_reason != FinishReason::kNone};
      return true;
    }
    if (open_ == 0) return false;
    changed_.wait(lock);
  }
}

RequestOutput Response::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_ == 0; });
  return std::move(output_);
}

Status Response::status() const {
  const std::lock_guard lock(mutex_);
  return output_.status;
}

bool Response::finished() const {
  const std::lock_guard lock(mutex_);
  return open_ == 0;
}

}  // namespace engine
}  // namespace choral
