// How much one name, a key's or an adapter's, may have at a time: requests in flight, and tokens by a bucket that refills at a
// steady rate. A request is charged what it may use at most before it starts, and gets back at its end what it did not use; so
// the limit holds for what is being computed, not for what was. A request larger than the bucket is let in when the bucket is
// full. Names are tracked in bounded number: one with nothing in flight and a full bucket is forgotten, which nobody can notice.
// Thread-safe. Times are seconds of any clock, handed in; one that goes back is taken to stand still.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

struct RateLimit {
  int max_in_flight = 0;    // 0: any number
  double tokens_per_s = 0;  // 0: any number
  double burst_tokens = 0;  // what can be had at once after a pause; 0: those of one minute
  bool unlimited() const { return max_in_flight <= 0 && tokens_per_s <= 0; }
};

class RateLimiter {
 public:
  static constexpr size_t kMaxNames = 20'000;
  static constexpr double kMinRetry_s = 1, kMaxRetry_s = 3600;

  // `what` stands in messages: "key", "adapter".
  RateLimiter(std::string what, RateLimit limit, size_t max_names = kMaxNames);

  // A place that was given. It ends in flight when it goes; what it did not use is given back.
  class Ticket {
   public:
    Ticket() = default;  // no place
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();
    // The request used so many tokens: prompt and answer. Without it, it used none. More than it was charged, where its prompt
    // had more tokens than were expected, is taken too.
    void settle(int64_t tokens);

   private:
    friend class RateLimiter;
    void release();
    RateLimiter* owner_ = nullptr;
    std::string name_;
    int64_t charged_ = 0, used_ = 0;
  };

  // resource_exhausted when there is no place now; then `retry_after_s` says when one may be, in whole seconds.
  Result<Ticket> admit(std::string_view name, int64_t most_tokens, double now, double& retry_after_s);
  int in_flight(std::string_view name) const;
  size_t tracked() const;

 private:
  struct Account {
    int in_flight = 0;
    double level = 0;  // tokens that are there; below 0 what was given in advance
    double at_s = 0;   // of `level`
  };
  void refill(Account& account, double now) const;
  void forget_idle(double now);
  void settle(const std::string& name, int64_t unused_tokens);

  const std::string what_;
  const RateLimit limit_;
  const double burst_;
  const size_t max_names_;
  mutable std::mutex mutex_;
  std::map<std::string, Account, std::less<>> accounts_;
};

}  // namespace choral::serve
