#include "serve/service/live_answer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/out_of_memory.h"
#include "serve/http/error_response.h"
#include "serve/keys/token_charge.h"
#include "serve/service/adapter_header.h"
#include "serve/service/whole_answer.h"

namespace choral::serve {
namespace {

// Proxies cut connections that say nothing for half a minute, and a prompt can take longer.
constexpr std::chrono::seconds kKeepAlive{10};
// What has not begun may still end with a status of its own, and has no adapters to tell in its head: it may be quiet for longer.
constexpr int kMostQuiet = 2;  // times kKeepAlive
constexpr size_t kSliceBytes = 64 << 10;

// Which content of each adapter the answer was made with.
void add_adapters(const std::vector<AnswerAdapter>& adapters, Headers& headers) {
  for (const auto& adapter : adapters) add_adapter_header(adapter.name, adapter.generation, adapter.digest, headers);
}

}  // namespace

LiveAnswer::LiveAnswer(Owner& owner, std::shared_ptr<HttpExchange> exchange, LiveRequest request,
                       std::unique_ptr<AnswerForm> form, bool is_streamed)
    : owner_(owner),
      exchange_(std::move(exchange)),
      streams_(std::move(request.streams)),
      grant_(std::move(request.grant)),
      told_(std::move(request.told)),
      form_(std::move(form)),
      is_streamed_(is_streamed),
      outputs_(streams_.size()),
      counted_(streams_.size()),
      begun_s_(now_s()),
      paces_(is_streamed ? streams_.size() : 0) {}

void LiveAnswer::start() {
  exchange_->post([self = shared_from_this()] { self->begin_reading(); });
}

void LiveAnswer::begin_reading() {
  self_ = shared_from_this();
  if (exchange_->closed()) return end(FinishReason::kCancelled);
  const std::weak_ptr<LiveAnswer> weak = self_;
  exchange_->on_closed([weak] {
    if (const auto left = weak.lock()) left->end(FinishReason::kCancelled);
  });
  // The engine's thread: hands the news to the exchange's.
  const auto tell = [weak] {
    if (const auto live = weak.lock()) {
      live->exchange_->post([weak] {
        if (const auto ready = weak.lock()) ready->pump();
      });
    }
  };
  for (const auto& live : streams_) live.stream->on_ready(tell);
  if (is_streamed_) {
    exchange_->post_after(kKeepAlive, [weak] {
      if (const auto quiet = weak.lock()) quiet->keep_alive();
    });
  }
}

// What the request brought of the answer is counted with it, as its client has it too.
void LiveAnswer::replay_given() {
  for (size_t i = 0; i < streams_.size(); ++i) {
    for (const StreamEvent& event : streams_[i].stream->given()) {
      usage_.completion_tokens += std::ssize(event.token_ids);
      if (is_streamed_) form_->replay(i, event, usage_);
    }
  }
}

void LiveAnswer::abort(Status status) {
  exchange_->post([weak = weak_from_this(), status = std::move(status)] {
    const auto self = weak.lock();
    if (self && self->self_) self->fail(status);
  });
}

// A piece that there is no memory for ends the answer: one without it would be another.
void LiveAnswer::pump() {
  if (!self_) return;
  const Status status = or_out_of_memory("the answer cannot be written", [this] {
    go_on();
    return Status();
  });
  if (self_ && !status.ok()) fail(status);
}

void LiveAnswer::go_on() {
  if (!std::exchange(replayed_, true)) replay_given();
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (!outputs_[i] && !drain(i)) return pump_when_drained();
    if (!self_) return;
  }
  if (std::all_of(outputs_.begin(), outputs_.end(), [](const auto& output) { return output.has_value(); })) finish();
}

void LiveAnswer::pump_when_drained() {
  exchange_->on_drained([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->pump();
  });
}

bool LiveAnswer::drain(size_t index) {
  ResponseStream& stream = *streams_[index].stream;
  StreamEvent event;
  for (;;) {
    if (!send_rest() || (is_streamed_ && exchange_->congested())) return false;
    switch (stream.try_next(event)) {
      case StreamState::kPending: return true;
      case StreamState::kEvent: take(index, event); break;
      case StreamState::kEnd: complete(index); return true;
    }
  }
}

// After send_rest().
void LiveAnswer::send(std::string piece) {
  if (piece.size() > kSliceBytes) {
    piece_ = std::move(piece);
  } else {
    exchange_->send(std::move(piece));
    is_quiet_ = false;
  }
}

// A slice makes the exchange congested, so the thread's other connections have their turns before the next.
bool LiveAnswer::send_rest() {
  while (!piece_.empty()) {
    if (exchange_->congested()) return false;
    exchange_->send(piece_.substr(piece_sent_, kSliceBytes));
    is_quiet_ = false;
    piece_sent_ += kSliceBytes;
    if (piece_sent_ < piece_.size()) continue;
    std::string().swap(piece_);
    piece_sent_ = 0;
  }
  return true;
}

void LiveAnswer::complete(size_t index) {
  LiveStream& live = streams_[index];
  RequestOutput& output = outputs_[index].emplace(live.stream->wait());
  live.meter.end({.prompt_tokens = std::ssize(output.prompt_token_ids),
                  .cached_tokens = output.cached_tokens,
                  .queue_s = output.metrics.queue_s,
                  .preemptions = output.metrics.preemptions},
                 output.status.ok() ? FinishReason::kStop : FinishReason::kError, now_s());
  live.place = {};
  if (!output.status.ok()) fail(output.status, live.stream->facts().adapter_unusable);
}

void LiveAnswer::take(size_t index, const StreamEvent& event) {
  if (!counted_[index]) {
    const AnswerFacts facts = streams_[index].stream->facts();
    usage_.prompt_tokens += facts.prompt_tokens;
    usage_.cached_tokens += facts.cached_tokens;
    counted_[index] = true;
    form_->set_facts(facts);
  }
  usage_.completion_tokens += std::ssize(event.token_ids);
  usage_.guesses += event.guesses;
  RequestMeter& meter = streams_[index].meter;
  meter.on_guesses(event.guesses);
  if (!event.token_ids.empty()) meter.on_tokens(event.index, std::ssize(event.token_ids), now_s());
  if (event.finish_reason != FinishReason::kNone) meter.on_finish(event.index, event.finish_reason, now_s());
  // The end of an answer that failed is told by fail().
  if (!is_streamed_ || event.finish_reason == FinishReason::kError) return;
  begin(index);
  pace(index, event);
  if (std::string piece = form_->piece(index, event, usage_); !piece.empty()) send(std::move(piece));
}

void LiveAnswer::pace(size_t index, const StreamEvent& event) {
  auto& [progress, first_s] = paces_[index];
  const double now = now_s();
  if (first_s == 0) {
    const AnswerFacts facts = streams_[index].stream->facts();
    first_s = now;
    progress.prompt_tokens = facts.prompt_tokens;
    progress.cached_tokens = facts.cached_tokens;
    progress.prompt_s = std::max(now - begun_s_ - facts.queue_s, 0.0);
  }
  progress.made_tokens += std::ssize(event.token_ids);
  progress.guesses += event.guesses;
  progress.answer_s = now - first_s;
  form_->set_progress(index, progress);
}

// As late as possible: until the first piece an error has a status of its own. `index`: of the stream that has it, whose adapters
// are known; those of a body's other prompts may still wait.
void LiveAnswer::begin(size_t index) {
  if (std::exchange(begun_, true)) return;
  Headers headers = form_->stream_headers();
  add_adapters(streams_[index].stream->facts().adapters, headers);
  exchange_->begin_stream(200, std::move(headers));
}

void LiveAnswer::keep_alive() {
  if (!self_) return;
  if (std::exchange(is_quiet_, true) && piece_sent_ == 0) {
    const auto known =
        std::find_if(streams_.begin(), streams_.end(), [](const LiveStream& live) { return live.stream->facts().begun; });
    if (begun_ || known != streams_.end() || ++quiet_times_ == kMostQuiet) {
      begin(known == streams_.end() ? 0 : static_cast<size_t>(known - streams_.begin()));
      exchange_->send(form_->keep_alive());
    }
  }
  exchange_->post_after(kKeepAlive, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->keep_alive();
  });
}

void LiveAnswer::finish() {
  if (is_streamed_) {
    begin(0);
    if (piece_.empty()) send(form_->end(usage_));  // else that is what is left
    if (!send_rest()) return pump_when_drained();
    exchange_->end_stream();
    return end(FinishReason::kStop);
  }
  Headers headers;
  add_adapters(outputs_.front()->adapters, headers);
  std::vector<RequestOutput> outputs;
  for (auto& output : outputs_) outputs.push_back(*std::move(output));
  headers.set("Content-Type", "application/json");
  send_whole(exchange_, std::move(headers), {.outputs = std::move(outputs), .form = std::move(form_)},
             [&owner = owner_](std::function<void()> work) { return owner.write_beside(std::move(work)); });
  end(FinishReason::kStop);
}

void LiveAnswer::fail(const Status& status, bool adapter_unusable) {
  ApiError error = owner_.explain(status);
  if (adapter_unusable) error = adapter_error(std::move(error));
  reason_ = error_reason(error);
  if (piece_sent_ > 0) {
    exchange_->abort();  // in the middle of an event nothing can be said
  } else if (begun_) {
    exchange_->send(form_->error(error));
    exchange_->end_stream();
  } else {
    exchange_->respond(error_response(error));
  }
  end(FinishReason::kError);
}

// `reason`: of what has not ended by itself. What was computed is charged, whether it was read or not: who leaves early, or reads
// slowly and then leaves, pays no less than who stays.
void LiveAnswer::end(FinishReason reason) {
  const std::shared_ptr<LiveAnswer> self = std::move(self_);
  if (!self) return;
  for (const auto& live : streams_) live.stream->on_ready({});
  for (const auto& live : streams_) live.stream->cancel();
  int64_t used = 0;
  Usage told;
  for (auto& live : streams_) {
    const AnswerFacts facts = live.stream->facts();
    used += used_tokens(facts);
    const int64_t prompt_tokens = facts.begun ? facts.prompt_tokens : 0;
    told.prompt_tokens += prompt_tokens;
    told.cached_tokens += facts.cached_tokens;
    told.completion_tokens += facts.made_tokens;
    live.meter.end({.prompt_tokens = prompt_tokens, .cached_tokens = facts.cached_tokens}, reason, now_s());
  }
  grant_.settle(used);
  if (reason == FinishReason::kCancelled) reason_ = "cancelled: the client left before the end";
  if (told_) told_(told, reason_);
  owner_.on_end(*this);
}

}  // namespace choral::serve
