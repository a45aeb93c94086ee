#include "serve/keys/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/printable.h"

namespace choral::serve {

RateLimiter::Ticket::Ticket(Ticket&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), name_(std::move(other.name_)), charged_(other.charged_), used_(other.used_) {}

RateLimiter::Ticket& RateLimiter::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    release();
    owner_ = std::exchange(other.owner_, nullptr);
    name_ = std::move(other.name_);
    charged_ = other.charged_;
    used_ = other.used_;
  }
  return *this;
}

RateLimiter::Ticket::~Ticket() { release(); }

void RateLimiter::Ticket::settle(int64_t tokens) { used_ = std::max<int64_t>(tokens, 0); }

void RateLimiter::Ticket::release() {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->settle(name_, charged_ - used_);
}

RateLimiter::RateLimiter(std::string what, RateLimit limit, size_t max_names)
    : what_(std::move(what)),
      limit_(limit),
      burst_(limit.burst_tokens > 0 ? limit.burst_tokens : 60 * limit.tokens_per_s),
      max_names_(max_names) {}

void RateLimiter::refill(Account& account, double now) const {
  const double passed = now - account.at_s;
  if (!(passed > 0)) return;
  account.level = std::min(burst_, account.level + passed * limit_.tokens_per_s);
  account.at_s = now;
}

// Nobody can tell such an account from a new one.
void RateLimiter::forget_idle(double now) {
  for (auto it = accounts_.begin(); it != accounts_.end();) {
    Account& account = it->second;
    refill(account, now);
    it = account.in_flight == 0 && account.level >= burst_ ? accounts_.erase(it) : std::next(it);
  }
}

Result<RateLimiter::Ticket> RateLimiter::admit(std::string_view name, int64_t most_tokens, double now, double& retry_after_s) {
  retry_after_s = 0;
  Ticket ticket;
  if (limit_.unlimited()) return ticket;
  most_tokens = std::max<int64_t>(most_tokens, 0);
  const std::lock_guard lock(mutex_);
  auto found = accounts_.find(name);
  if (found == accounts_.end()) {
    if (accounts_.size() >= max_names_) forget_idle(now);
    if (accounts_.size() >= max_names_) {
      retry_after_s = kMinRetry_s;
      return resource_exhausted("limits are kept for {} {}s at a time, and all are in use; try again later", max_names_, what_);
    }
    found = accounts_.emplace(std::string(name), Account{.in_flight = 0, .level = burst_, .at_s = now}).first;
  }
  Account& account = found->second;
  refill(account, now);
  if (limit_.max_in_flight > 0 && account.in_flight >= limit_.max_in_flight) {
    retry_after_s = kMinRetry_s;
    return resource_exhausted("{} '{}' has {} requests in flight, the most that it may have; try again when one has ended", what_,
                              printable(name), account.in_flight);
  }
  if (limit_.tokens_per_s > 0) {
    const double missing = std::min(static_cast<double>(most_tokens), burst_) - account.level;
    if (missing > 0) {
      retry_after_s = std::clamp(std::ceil(missing / limit_.tokens_per_s), kMinRetry_s, kMaxRetry_s);
      return resource_exhausted("{} '{}' has used its {:.0f} tokens a minute; try again in {:.0f} s, or ask for fewer max_tokens",
                                what_, printable(name), 60 * limit_.tokens_per_s, retry_after_s);
    }
    account.level -= static_cast<double>(most_tokens);
  }
  ++account.in_flight;
  ticket.owner_ = this;
  ticket.name_ = found->first;
  ticket.charged_ = most_tokens;
  return ticket;
}

void RateLimiter::settle(const std::string& name, int64_t unused_tokens) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(name);
  CHORAL_CHECK(found != accounts_.end() && found->second.in_flight > 0, "a ticket of an account that is gone");
  --found->second.in_flight;
  if (limit_.tokens_per_s > 0) found->second.level = std::min(burst_, found->second.level + static_cast<double>(unused_tokens));
}

int RateLimiter::in_flight(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(name);
  return found == accounts_.end() ? 0 : found->second.in_flight;
}

size_t RateLimiter::tracked() const {
  const std::lock_guard lock(mutex_);
  return accounts_.size();
}

}  // namespace choral::serve
