#include "sched/fair_share.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace choral::sched {

ShareAccount* FairShare::join(int32_t adapter_key) {
  auto found = accounts_.find(adapter_key);
  if (found == accounts_.end() || found->second.live_requests == 0) raise_floor();
  if (found == accounts_.end()) {
    if (accounts_.size() >= max_accounts_) forget_idle();
    found = accounts_.emplace(adapter_key, ShareAccount{.adapter_key = adapter_key, .virtual_tokens = floor_}).first;
  }
  ShareAccount& account = found->second;
  if (account.live_requests == 0) account.virtual_tokens = std::max(account.virtual_tokens, floor_);
  ++account.live_requests;
  return &account;
}

void FairShare::leave(ShareAccount* account) {
  CHORAL_CHECK(account->live_requests > 0, "an adapter's share was left more often than joined");
  // The last active one keeps the floor at its own level: newcomers start level with it, not below.
  if (account->live_requests == 1) raise_floor();
  --account->live_requests;
}

void FairShare::raise_floor() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [key, account] : accounts_) {
    if (account.live_requests > 0) least = std::min(least, account.virtual_tokens);
  }
  if (least != std::numeric_limits<int64_t>::max()) floor_ = std::max(floor_, least);
}

void FairShare::forget_idle() {
  auto smallest = accounts_.end();
  bool forgot = false;
  for (auto it = accounts_.begin(); it != accounts_.end();) {
    const ShareAccount& account = it->second;
    if (account.live_requests == 0 && account.virtual_tokens <= floor_) {
      it = accounts_.erase(it);  // would be lifted to the floor anyway
      forgot = true;
      continue;
    }
    if (account.live_requests == 0 && (smallest == accounts_.end() || account.virtual_tokens < smallest->second.virtual_tokens)) {
      smallest = it;
    }
    ++it;
  }
  if (!forgot && smallest != accounts_.end()) accounts_.erase(smallest);
}

}  // namespace choral::sched
