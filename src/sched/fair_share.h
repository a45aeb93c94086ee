// Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models"). Each adapter has an account that grows with
// the work done for it, input tokens weighing 1 and output tokens 2. Among waiting requests the smallest account goes first. The
// account is the adapter's, whatever the factor. Work of a mix is charged to each of its adapters, and a mix waits by the largest
// of their accounts: other factors or other company do not make a request go first.
// An adapter that comes back after a pause is lifted to the smallest active account, so idling saves up no credit. Accounts of
// idle adapters are forgotten once they carry no debt; their number is bounded. Calls do not look at the idle ones, except for
// one call in many, which forgets some. charge() allocates nothing. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lora/adapter_ids.h"

namespace choral::sched {

inline constexpr int64_t kInputWeight = 1;
inline constexpr int64_t kOutputWeight = 2;

struct ShareAccount {
  lora::AdapterId adapter;  // or the base
  int32_t live_requests = 0;
  int32_t running_requests = 0;  // kept by the scheduler, for the number of distinct adapters of a step
  int64_t virtual_tokens = 0;
  size_t active_place = 0;  // FairShare's
};

// What requests of one adapter key have in common.
struct Share {
  std::vector<ShareAccount*> accounts;  // of their adapters; the base's for requests without
  int32_t live_requests = 0;
  uint64_t deferred_step = 0;  // step in which these adapters cannot be had: the requests need not be asked one by one
  int64_t overtaken = 0;       // by requests that took adapters while the first of these was refused

  int64_t virtual_tokens() const {
    int64_t most = 0;
    for (const ShareAccount* account : accounts) most = account->virtual_tokens > most ? account->virtual_tokens : most;
    return most;
  }
};

class FairShare {
 public:
  explicit FairShare(size_t max_accounts = 4096) : max_accounts_(max_accounts) {}

  // A request of this key comes, whose distinct adapters these are (none: the base). The share and its accounts stay in place
  // until the matching leave().
  Share* join(lora::AdapterKey key, std::span<const lora::AdapterId> adapters);
  void leave(lora::AdapterKey key);
  static void charge(Share* share, int64_t virtual_tokens) {
    for (ShareAccount* account : share->accounts) account->virtual_tokens += virtual_tokens;
  }

  size_t account_count() const { return accounts_.size(); }
  size_t share_count() const { return shares_.size(); }
  int64_t looked_at() const { return looked_at_; }  // accounts, so far

 private:
  ShareAccount* open_account(lora::AdapterId adapter);
  void close_account(ShareAccount& account);
  void raise_floor();
  void forget_idle();

  size_t max_accounts_;
  int64_t floor_ = 0;  // smallest active account seen last; never falls
  std::unordered_map<lora::AdapterId, ShareAccount> accounts_;
  std::vector<ShareAccount*> active_;  // those with live requests
  int64_t looked_at_ = 0;
  std::unordered_map<lora::AdapterKey, Share> shares_;  // of live requests
};

}  // namespace choral::sched
