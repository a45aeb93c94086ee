#include "engine/response.h"

#include <algorithm>
#include <iterator>
#include <limits>

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
namespace {

constexpr std::chrono::hours kLongestWait{24 * 365};  // further ones are beyond what the system's clock adds up

// A completion that failed is worse than any other.
double mean_logprob(const Completion& completion) {
  if (completion.finish_reason == FinishReason::kError || completion.token_ids.empty())
    return -std::numeric_limits<double>::infinity();
  return completion.cumulative_logprob / static_cast<double>(completion.token_ids.size());
}

}  // namespace

Response::Response(std::string id, std::vector<int32_t> prompt_token_ids, const ResponseForm& form)
    : id_(std::move(id)), form_(form), cursors_(form.completions), open_(form.completions) {
  output_.id = id_;
  facts_.seed = form.seed;
  facts_.prompt_tokens = static_cast<int>(prompt_token_ids.size());
  output_.prompt_token_ids = std::move(prompt_token_ids);
  output_.completions.resize(form.completions);
  for (int i = 0; i < form.completions; ++i) {
    auto& completion = output_.completions[i];
    completion.index = i;
    completion.token_ids.reserve(form.expected_tokens);
    completion.text.reserve(form.expected_tokens * kTextBytesPerToken);
    if (form.with_logprobs) completion.logprobs.reserve(form.expected_tokens);
  }
}

void Response::give(int index, std::vector<int32_t> token_ids, std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto& completion = output_.completions[index];
  completion.given_token_ids = std::move(token_ids);
  completion.given_text = text;
}

void Response::begin(int cached_tokens, std::vector<AnswerAdapter> adapters, double queue_s) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(facts_.begun, true)) return;
  facts_.queue_s = queue_s;
  facts_.cached_tokens = cached_tokens;
  facts_.adapters = std::move(adapters);
}

bool Response::begun() const {
  const std::lock_guard lock(mutex_);
  return facts_.begun;
}

Completion* Response::open_completion(int index) {
  if (open_ == 0) return nullptr;
  auto& completion = output_.completions[index];
  return completion.finish_reason == FinishReason::kNone ? &completion : nullptr;
}

// There is news for whoever reads; the best are known at the end only.
void Response::tell() {
  if (is_silent()) return;
  if (called_back_ && !std::exchange(told_, true)) call_due_ = true;
  news_ = true;
}

void Response::wake() {
  if (!news_.load() || !news_.exchange(false)) return;
  changed_.notify_all();
  if (!call_due_.exchange(false)) return;
  const std::lock_guard lock(callback_mutex_);
  if (callback_) callback_();
}

void Response::add_token(int index, int32_t token_id, float logprob, std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->token_ids.push_back(token_id);
  ++facts_.made_tokens;
  completion->cumulative_logprob += logprob;
  completion->text += text;
  tell();
}

void Response::add_logprobs(int index, PositionLogprobs logprobs) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->logprobs.push_back(std::move(logprobs));
}

void Response::add_text(int index, std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr || text.empty()) return;
  completion->text += text;
  tell();
}

void Response::add_prompt_logprobs(int32_t first_row, std::span<PositionLogprobs> logprobs) {
  const std::lock_guard lock(mutex_);
  CHORAL_CHECK(static_cast<size_t>(first_row) == output_.prompt_logprobs.size(),
               "a prompt's log-probabilities come in order, each once");
  output_.prompt_logprobs.insert(output_.prompt_logprobs.end(), std::make_move_iterator(logprobs.begin()),
                                 std::make_move_iterator(logprobs.end()));
}

void Response::set_guesses(int index, const GuessCounts& guesses) {
  const std::lock_guard lock(mutex_);
  if (auto* completion = open_completion(index)) completion->guesses = guesses;
}

void Response::set_embedding(std::vector<float> embedding) {
  const std::lock_guard lock(mutex_);
  if (open_ > 0) output_.embedding = std::move(embedding);
}

void Response::set_classes(std::vector<float> logits) {
  const std::lock_guard lock(mutex_);
  if (open_ > 0) output_.classes = std::move(logits);
}

void Response::finish(int index, FinishReason reason, std::string stop_reason, const RequestMetrics& metrics, bool by_token) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->finish_reason = reason;
  completion->stop_reason = std::move(stop_reason);
  completion->stopped_by_token = by_token;
  output_.metrics.queue_s = std::max(output_.metrics.queue_s, metrics.queue_s);
  output_.metrics.first_token_s = std::max(output_.metrics.first_token_s, metrics.first_token_s);
  output_.metrics.total_s = std::max(output_.metrics.total_s, metrics.total_s);
  output_.metrics.preemptions += metrics.preemptions;
  end_one();
}

void Response::fail(int index, Status status, bool adapter_unusable) {
  const std::lock_guard lock(mutex_);
  auto* completion = open_completion(index);
  if (completion == nullptr) return;
  completion->finish_reason = FinishReason::kError;
  if (output_.status.ok()) {
    output_.status = std::move(status);
    facts_.adapter_unusable = adapter_unusable;
  }
  end_one();
}

void Response::end_one() {
  if (--open_ == 0 && form_.best > 0) keep_best();
  if (!form_.gives_text) output_.completions.clear();
  tell();
}

void Response::keep_best() {
  auto& all = output_.completions;
  // Equal ones in the order of their seeds.
  std::sort(all.begin(), all.end(), [](const Completion& a, const Completion& b) {
    const double x = mean_logprob(a), y = mean_logprob(b);
    return x != y ? x > y : a.index < b.index;
  });
  all.resize(form_.best);
  cursors_.resize(form_.best);
  for (int i = 0; i < form_.best; ++i) all[i].index = i;
}

bool Response::has_news(size_t index) const {
  const auto& completion = output_.completions[index];
  const auto& cursor = cursors_[index];
  const bool finish = completion.finish_reason != FinishReason::kNone && !cursor.finish;
  return finish || completion.token_ids.size() > cursor.tokens || completion.text.size() > cursor.text;
}

bool Response::take_news(StreamEvent& event) {
  if (is_silent()) return false;
  for (size_t i = 0; i < output_.completions.size(); ++i) {
    if (!has_news(i)) continue;
    const auto& completion = output_.completions[i];
    auto& cursor = cursors_[i];
    event.index = static_cast<int>(i);
    event.text.assign(completion.text, cursor.text);
    event.token_ids.assign(completion.token_ids.begin() + static_cast<ptrdiff_t>(cursor.tokens), completion.token_ids.end());
    event.logprobs.assign(completion.logprobs.begin() + static_cast<ptrdiff_t>(cursor.logprobs), completion.logprobs.end());
    event.prompt_logprobs.clear();
    if (i == 0 && !cursor.prompt_logprobs) event.prompt_logprobs = output_.prompt_logprobs;
    event.finish_reason = completion.finish_reason;
    event.stop_reason = completion.stop_reason;
    event.stopped_by_token = completion.stopped_by_token;
    event.guesses = completion.guesses - cursor.guesses;
    cursor = {completion.text.size(),
              completion.token_ids.size(),
              completion.logprobs.size(),
              completion.guesses,
              true,
              completion.finish_reason != FinishReason::kNone};
    return true;
  }
  return false;
}

StreamState Response::take(StreamEvent& event) {
  if (take_news(event)) return StreamState::kEvent;
  return open_ == 0 ? StreamState::kEnd : StreamState::kPending;
}

bool Response::next(StreamEvent& event) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto state = take(event);
    if (state != StreamState::kPending) return state == StreamState::kEvent;
    changed_.wait(lock);
  }
}

StreamState Response::try_next(StreamEvent& event) {
  const std::lock_guard lock(mutex_);
  const auto state = take(event);
  if (state == StreamState::kPending) told_ = false;
  return state;
}

StreamState Response::next_for(StreamEvent& event, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  auto state = StreamState::kPending;
  changed_.wait_for(lock, std::min<std::chrono::milliseconds>(limit, kLongestWait), [&] {
    state = take(event);
    return state != StreamState::kPending;
  });
  if (state == StreamState::kPending) told_ = false;
  return state;
}

void Response::on_ready(std::function<void()> callback) {
  const std::lock_guard callback_lock(callback_mutex_);
  callback_.swap(callback);  // the one before is destroyed when no lock is held
  bool ready = false;
  {
    const std::lock_guard lock(mutex_);
    called_back_ = callback_ != nullptr;
    for (size_t i = 0; i < output_.completions.size(); ++i) ready = ready || has_news(i);
    ready = !is_silent() && (ready || open_ == 0);
    told_ = ready;
  }
  if (ready && callback_) callback_();
}

AnswerFacts Response::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

std::vector<int32_t> Response::prompt_token_ids() const {
  const std::lock_guard lock(mutex_);
  return output_.prompt_token_ids;
}

std::vector<StreamEvent> Response::given() const {
  const std::lock_guard lock(mutex_);
  std::vector<StreamEvent> all;
  for (const auto& completion : output_.completions) {
    if (completion.given_token_ids.empty()) continue;
    StreamEvent& event = all.emplace_back();
    event.index = completion.index;
    event.text = completion.given_text;
    event.token_ids = completion.given_token_ids;
  }
  return all;
}

RequestOutput Response::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_ == 0; });
  output_.cached_tokens = facts_.cached_tokens;
  output_.adapters = facts_.adapters;
  RequestOutput out = std::move(output_);
  output_.completions.clear();
  output_.status = out.status;
  return out;
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
