#include "serve/keys/request_limits.h"

#include <set>

namespace choral::serve {

void RequestLimits::Grant::settle(int64_t tokens) {
  for (auto& ticket : tickets_) ticket.settle(tokens);
}

RequestLimits::Verdict RequestLimits::admit(std::string_view key_name, std::span<const AdapterUse> adapters, int64_t most_tokens,
                                            double now) {
  Verdict out;
  const auto take = [&](RateLimiter& limiter, std::string_view name) {
    auto ticket = limiter.admit(name, most_tokens, now, out.retry_after_s);
    out.status = ticket.status();
    if (ticket.ok()) out.grant.tickets_.push_back(std::move(*ticket));
    return ticket.ok();
  };
  bool granted = take(keys_, key_name);
  std::set<std::string_view> seen;
  for (const auto& adapter : adapters) {
    if (!granted || !seen.insert(adapter.name).second) continue;
    granted = take(adapters_, adapter.name);
    out.by_adapter = !granted;
  }
  if (!granted) out.grant = {};
  return out;
}

}  // namespace choral::serve
