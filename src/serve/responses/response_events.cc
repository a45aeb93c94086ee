#include "serve/responses/response_events.h"

#include <algorithm>
#include <utility>

#include "serve/http/sse.h"

namespace choral::serve {
namespace {

constexpr int64_t kLogBytes = 1024, kEventBytes = 64;  // beside their text
constexpr std::string_view kEventEnd = "\n\n";

int64_t kept_bytes(const std::string& event) { return kEventBytes + std::ssize(event); }

}  // namespace

ResponseEvents::ResponseEvents(ResponseEventLogs& logs) : logs_(logs) { logs_.bytes_ += kLogBytes; }

ResponseEvents::~ResponseEvents() {
  int64_t bytes = kLogBytes;
  for (const auto& event : events_) bytes += kept_bytes(event);
  logs_.bytes_ -= bytes;
}

void ResponseEvents::append(std::string_view text) {
  Followers woken;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    partial_ += text;
    size_t at = 0;
    for (size_t end; (end = partial_.find(kEventEnd, at)) != std::string::npos; at = end + kEventEnd.size()) {
      std::string event = partial_.substr(at, end + kEventEnd.size() - at);
      if (event.front() == ':') {
        for (const auto& follower : followers_) follower->comment = event;
        continue;
      }
      logs_.bytes_ += kept_bytes(event);
      events_.push_back(std::move(event));
    }
    partial_.erase(0, at);
    woken = to_wake();
  }
  wake(woken);
  logs_.grown(*this);
}

void ResponseEvents::close() {
  Followers woken;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    woken = to_wake();
  }
  wake(woken);
}

bool ResponseEvents::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

int64_t ResponseEvents::next() const {
  const std::lock_guard lock(mutex_);
  return next_locked();
}

bool ResponseEvents::drop_oldest() {
  const std::lock_guard lock(mutex_);
  if (events_.size() < 2) return false;
  logs_.bytes_ -= kept_bytes(events_.front());
  events_.pop_front();
  ++first_;
  return true;
}

bool ResponseEvents::follow(std::shared_ptr<HttpExchange> exchange, int64_t after) {
  const auto follower = std::make_shared<Follower>();
  follower->exchange = exchange;
  {
    const std::lock_guard lock(mutex_);
    if (after + 1 < first_) return false;
    follower->next = after + 1;
    follower->posted = true;
    followers_.push_back(follower);
  }
  exchange->begin_stream(200, sse_headers());
  exchange->on_closed([weak_self = weak_from_this(), weak = std::weak_ptr(follower)] {
    const auto self = weak_self.lock();
    if (const auto left = weak.lock(); self && left) self->forget(left);
  });
  wake({follower});
  return true;
}

ResponseEvents::Followers ResponseEvents::to_wake() {
  Followers out;
  for (const auto& follower : followers_) {
    if (!std::exchange(follower->posted, true)) out.push_back(follower);
  }
  return out;
}

void ResponseEvents::wake(const Followers& followers) {
  for (const auto& follower : followers)
    follower->exchange->post([self = shared_from_this(), follower] { self->pump(follower); });
}

void ResponseEvents::forget(const std::shared_ptr<Follower>& follower) {
  const std::lock_guard lock(mutex_);
  std::erase(followers_, follower);
}

// On the follower's own thread. Whatever it has read is in `next`; a client that reads slowly finds the rest here.
void ResponseEvents::pump(const std::shared_ptr<Follower>& follower) {
  HttpExchange& exchange = *follower->exchange;
  for (;;) {
    if (exchange.closed()) return forget(follower);
    if (exchange.congested()) return pump_when_drained(follower);
    std::string piece;
    bool is_lost = false, is_over = false;
    {
      const std::lock_guard lock(mutex_);
      is_lost = follower->next < first_;
      if (!is_lost && follower->next < next_locked()) {
        piece = events_[static_cast<size_t>(follower->next++ - first_)];
        follower->comment.clear();
      } else if (!is_lost) {
        piece = std::exchange(follower->comment, {});
        is_over = closed_ && piece.empty();
        if (piece.empty()) follower->posted = false;
      }
    }
    if (!piece.empty()) {
      exchange.send(std::move(piece));
      continue;
    }
    if (is_lost) exchange.abort();
    if (is_over) exchange.end_stream();
    if (is_lost || is_over) forget(follower);
    return;
  }
}

void ResponseEvents::pump_when_drained(const std::shared_ptr<Follower>& follower) {
  follower->exchange->on_drained([weak_self = weak_from_this(), weak = std::weak_ptr(follower)] {
    const auto self = weak_self.lock();
    if (const auto drained = weak.lock(); self && drained) self->wake({drained});
  });
}

std::shared_ptr<ResponseEvents> ResponseEventLogs::add(std::string id) {
  auto events = std::make_shared<ResponseEvents>(*this);
  const std::lock_guard lock(mutex_);
  all_.emplace_back(std::move(id), events);
  return events;
}

std::shared_ptr<ResponseEvents> ResponseEventLogs::find(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(all_.begin(), all_.end(), [id](const auto& one) { return one.first == id; });
  return found == all_.end() ? nullptr : found->second;
}

void ResponseEventLogs::remove(std::string_view id) {
  const std::lock_guard lock(mutex_);
  all_.remove_if([id](const auto& one) { return one.first == id; });
}

void ResponseEventLogs::grown(ResponseEvents& by) {
  while (bytes_ > most_bytes_ && drop_ended()) {
  }
  while (bytes_ > most_bytes_ && by.drop_oldest()) {
  }
}

bool ResponseEventLogs::drop_ended() {
  std::shared_ptr<ResponseEvents> dropped;  // goes behind the lock
  const std::lock_guard lock(mutex_);
  const auto ended = std::find_if(all_.begin(), all_.end(), [](const auto& one) { return one.second->is_closed(); });
  if (ended == all_.end()) return false;
  dropped = std::move(ended->second);
  all_.erase(ended);
  return true;
}

}  // namespace choral::serve
