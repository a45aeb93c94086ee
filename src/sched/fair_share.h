// Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models"): each adapter key has an account that grows
// with the work done for it, input tokens weighing 1 and output tokens 2; among waiting requests the smallest account goes
// first. An adapter that comes back after a pause is lifted to the smallest active account, so idling saves up no credit.
// Accounts of idle adapters are forgotten once they carry no debt; their number is bounded. charge() allocates nothing. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace choral::sched {

inline constexpr int64_t kInputWeight = 1;
inline constexpr int64_t kOutputWeight = 2;

struct ShareAccount {
  int32_t adapter_key = 0;
  int32_t live_requests = 0;
  int32_t running_requests = 0;  // kept by the scheduler, for the number of distinct adapters of a step
  int64_t virtual_tokens = 0;
  uint64_t deferred_step = 0;  // step in which the adapter cannot be had: its requests need not be asked one by one
};

class FairShare {
 public:
  explicit FairShare(size_t max_accounts = 4096) : max_accounts_(max_accounts) {}

  // A request of this adapter comes; the account stays in place until the matching leave().
  ShareAccount* join(int32_t adapter_key);
  void leave(ShareAccount* account);
  static void charge(ShareAccount* account, int64_t virtual_tokens) { account->virtual_tokens += virtual_tokens; }

  size_t account_count() const { return accounts_.size(); }

 private:
  void raise_floor();
  void forget_idle();

  size_t max_accounts_;
  int64_t floor_ = 0;  // smallest active account seen last; never falls
  std::unordered_map<int32_t, ShareAccount> accounts_;
};

}  // namespace choral::sched
