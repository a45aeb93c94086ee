// The events of responses that are computed for nobody who waits and streamed all the same: each is kept, by its number, for
// whoever follows now or comes back. They are kept in memory, of all responses together so many bytes: those of responses that
// ended longest ago go first, then the oldest of the one that grows. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/exchange.h"

namespace choral::serve {

class ResponseEventLogs;

class ResponseEvents : public std::enable_shared_from_this<ResponseEvents> {
 public:
  explicit ResponseEvents(ResponseEventLogs& logs);  // which outlive it
  ~ResponseEvents();
  ResponseEvents(const ResponseEvents&) = delete;
  ResponseEvents& operator=(const ResponseEvents&) = delete;

  // A stream as an answer sends it, in any pieces: server-sent events, whose numbers are their places. Comments between them go
  // to who follows and are not kept.
  void append(std::string_view text);
  void close();  // no more come; what follows is ended behind the last
  bool is_closed() const;
  int64_t next() const;  // the number of the event that comes
  bool drop_oldest();    // false: only the last is left

  // Streams what is behind the event `after` (-1: all), now or later, to a client that was not answered yet. A client that
  // leaves is forgotten. False: some of it is not kept any more, and nothing was answered.
  bool follow(std::shared_ptr<HttpExchange> exchange, int64_t after);

 private:
  struct Follower {
    std::shared_ptr<HttpExchange> exchange;
    int64_t next = 0;
    bool posted = false;  // pump() comes
    std::string comment = {};
  };
  using Followers = std::vector<std::shared_ptr<Follower>>;

  void wake(const Followers& followers);
  void pump(const std::shared_ptr<Follower>& follower);
  void pump_when_drained(const std::shared_ptr<Follower>& follower);
  void forget(const std::shared_ptr<Follower>& follower);
  Followers to_wake();
  int64_t next_locked() const { return first_ + static_cast<int64_t>(events_.size()); }

  ResponseEventLogs& logs_;
  mutable std::mutex mutex_;
  std::deque<std::string> events_;
  int64_t first_ = 0;    // the number of the first that is kept
  std::string partial_;  // of an event
  bool closed_ = false;
  Followers followers_;
};

class ResponseEventLogs {
 public:
  static constexpr int64_t kMostBytes = int64_t{64} << 20;

  explicit ResponseEventLogs(int64_t most_bytes = kMostBytes) : most_bytes_(most_bytes) {}

  std::shared_ptr<ResponseEvents> add(std::string id);
  std::shared_ptr<ResponseEvents> find(std::string_view id);  // null: they are not kept
  void remove(std::string_view id);
  int64_t bytes() const { return bytes_; }

 private:
  friend class ResponseEvents;
  void grown(ResponseEvents& by);
  bool drop_ended();

  const int64_t most_bytes_;
  std::atomic<int64_t> bytes_ = 0;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<ResponseEvents>>> all_;  // the oldest first
};

}  // namespace choral::serve
