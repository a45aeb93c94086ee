#include "sched/fair_share.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace choral::sched {
namespace {

constexpr size_t kForgottenShare = 8;

}  // namespace

Share* FairShare::join(lora::AdapterKey key, std::span<const lora::AdapterId> adapters) {
  Share& share = shares_[key];
  if (share.live_requests > 0) {
    ++share.live_requests;
    for (ShareAccount* account : share.accounts) ++account->live_requests;  // which are active
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
  if (account.live_requests == 0) {
    account.virtual_tokens = std::max(account.virtual_tokens, floor_);
    account.active_place = active_.size();
    active_.push_back(&account);
  }
  ++account.live_requests;
  return &account;
}

void FairShare::close_account(ShareAccount& account) {
  if (--account.live_requests > 0) return;
  active_.back()->active_place = account.active_place;
  active_[account.active_place] = active_.back();
  active_.pop_back();
}

void FairShare::leave(lora::AdapterKey key) {
  const auto found = shares_.find(key);
  CHORAL_CHECK(found != shares_.end(), "a share was left more often than joined");
  Share& share = found->second;
  // The last active one keeps the floor at its own level: newcomers start level with it, not below.
  const bool last_of_one = std::any_of(share.accounts.begin(), share.accounts.end(),
                                       [](const ShareAccount* account) { return account->live_requests == 1; });
  if (last_of_one) raise_floor();
  for (ShareAccount* account : share.accounts) close_account(*account);
  if (--share.live_requests == 0) shares_.erase(found);
}

void FairShare::raise_floor() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const ShareAccount* account : active_) least = std::min(least, account->virtual_tokens);
  looked_at_ += std::ssize(active_);
  if (least != std::numeric_limits<int64_t>::max()) floor_ = std::max(floor_, least);
}

// Those without debt, which would be lifted to the floor anyway, and of the others those with the least: so many at once that it
// is seldom looked for.
void FairShare::forget_idle() {
  std::vector<std::pair<int64_t, lora::AdapterId>> idle;
  for (const auto& [adapter, account] : accounts_) {
    if (account.live_requests == 0) idle.emplace_back(account.virtual_tokens, adapter);
  }
  looked_at_ += std::ssize(accounts_);
  std::sort(idle.begin(), idle.end());
  const size_t share = std::max<size_t>(1, max_accounts_ / kForgottenShare);
  for (size_t i = 0; i < idle.size() && (i < share || idle[i].first <= floor_); ++i) accounts_.erase(idle[i].second);
}

}  // namespace choral::sched
