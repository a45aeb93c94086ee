#include "sched/fair_share.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace choral::sched {

Share* FairShare::join(lora::AdapterKey key, std::span<const lora::AdapterId> adapters) {
  Share& share = shares_[key];
  if (share.live_requests > 0) {
    ++share.live_requests;
    for (ShareAccount* account : share.accounts) ++account->live_requests;
    return &share;
  }
  share.accounts.reserve(adapters.size() + 1);
  if (adapters.empty()) share.accounts.push_back(open_account(lora::kBaseAdapter));
  for (const lora::AdapterId adapter : adapters) share.accounts.push_back(open_account(adapter));
  share.live_requests = 1;
  return &share;
}

// For one more live request.
ShareAccount* FairShare::open_account(lora::AdapterId adapter) {
  auto found = accounts_.find(adapter);
  if (found == accounts_.end() || found->second.live_requests == 0) raise_floor();
  if (found == accounts_.end()) {
    if (accounts_.size() >= max_accounts_) forget_idle();
    found = accounts_.emplace(adapter, ShareAccount{.adapter = adapter, .virtual_tokens = floor_}).first;
  }
  ShareAccount& account = found->second;
  if (account.live_requests == 0) account.virtual_tokens = std::max(account.virtual_tokens, floor_);
  ++account.live_requests;
  return &account;
}

void FairShare::leave(lora::AdapterKey key) {
  const auto found = shares_.find(key);
  CHORAL_CHECK(found != shares_.end(), "a share was left more often than joined");
  Share& share = found->second;
  // The last active one keeps the floor at its own level: newcomers start level with it, not below.
  const bool last_of_one = std::any_of(share.accounts.begin(), share.accounts.end(),
                                       [](const ShareAccount* account) { return account->live_requests == 1; });
  if (last_of_one) raise_floor();
  for (ShareAccount* account : share.accounts) --account->live_requests;
  if (--share.live_requests == 0) shares_.erase(found);
}

void FairShare::raise_floor() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [adapter, account] : accounts_) {
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
