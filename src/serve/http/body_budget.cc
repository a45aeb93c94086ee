#include "serve/http/body_budget.h"

#include "base/check.h"

namespace choral::serve {

bool BodyBudget::take(std::string_view payer, int64_t bytes, int64_t most) {
  const std::lock_guard lock(mutex_);
  auto found = by_payer_.find(payer);
  const int64_t own = (found == by_payer_.end() ? 0 : found->second) + bytes;
  if (own > most - held_ - bytes) return false;
  if (found == by_payer_.end()) found = by_payer_.emplace(payer, 0).first;
  found->second = own;
  held_ += bytes;
  return true;
}

void BodyBudget::give_back(std::string_view payer, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = by_payer_.find(payer);
  CHORAL_CHECK(found != by_payer_.end() && found->second >= bytes, "bytes of a body that nobody holds");
  found->second -= bytes;
  held_ -= bytes;
  if (found->second == 0) by_payer_.erase(found);
}

int64_t BodyBudget::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace choral::serve
