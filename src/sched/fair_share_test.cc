#include "sched/fair_share.h"

#include <gtest/gtest.h>

namespace choral::sched {
namespace {

using lora::AdapterId;
using lora::AdapterKey;

// A request of one adapter, whose key has the same number.
Share* join(FairShare& shares, int32_t number) {
  const AdapterId adapter{number};
  return shares.join(AdapterKey{number}, {&adapter, 1});
}

TEST(FairShare, AnAdapterHasOneAccount) {
  FairShare shares;
  Share* share = join(shares, 5);
  EXPECT_EQ(join(shares, 5), share);
  EXPECT_EQ(share->accounts.at(0)->live_requests, 2);
  EXPECT_NE(join(shares, 6)->accounts, share->accounts);
}

TEST(FairShare, AnotherFactorHasTheAccountOfItsAdapter) {
  FairShare shares;
  const AdapterId adapter{5};
  Share *plain = join(shares, 5), *scaled = shares.join(AdapterKey{100}, {&adapter, 1});
  EXPECT_NE(plain, scaled);
  EXPECT_EQ(plain->accounts, scaled->accounts);
  FairShare::charge(scaled, 30);
  EXPECT_EQ(plain->virtual_tokens(), 30);
  EXPECT_EQ(shares.account_count(), 1u);
}

TEST(FairShare, AMixIsChargedToEachOfItsAdaptersAndStandsWhereTheLargestDoes) {
  FairShare shares;
  const std::vector<AdapterId> both{AdapterId{1}, AdapterId{2}};
  Share *one = join(shares, 1), *two = join(shares, 2);
  FairShare::charge(one, 100);
  Share* mix = shares.join(AdapterKey{100}, both);
  EXPECT_EQ(mix->virtual_tokens(), 100);
  FairShare::charge(mix, 7);
  EXPECT_EQ(one->virtual_tokens(), 107);
  EXPECT_EQ(two->virtual_tokens(), 7);
  shares.leave(AdapterKey{100});
  EXPECT_EQ(one->accounts.at(0)->live_requests, 1);
}

// With ten thousand adapters as with ten, of which a few have requests at a time.
TEST(FairShare, IdleAccountsCostNothing) {
  const auto looked_at = [](int32_t adapters) {
    FairShare shares;
    for (int32_t request = 0; request < 20'000; ++request) {
      FairShare::charge(join(shares, 1 + request % adapters), 10 + request % 7);
      if (request >= 8) shares.leave(AdapterKey{1 + (request - 8) % adapters});
    }
    return shares.looked_at();
  };
  EXPECT_LT(looked_at(10'000), 4 * looked_at(10));
}

TEST(FairShare, RequestsWithoutAdaptersShareTheBasesAccount) {
  FairShare shares;
  Share* base = shares.join(lora::kBaseKey, {});
  EXPECT_EQ(base->accounts.at(0)->adapter, lora::kBaseAdapter);
  EXPECT_EQ(base->accounts.at(0)->live_requests, 1);
}

TEST(FairShare, ANewcomerStartsAtTheSmallestActiveAccount) {
  FairShare shares;
  Share *rich = join(shares, 1), *poor = join(shares, 2);
  FairShare::charge(rich, 100);
  FairShare::charge(poor, 60);
  EXPECT_EQ(join(shares, 3)->virtual_tokens(), 60);
}

TEST(FairShare, IdlingSavesNoCreditAndForgivesNoDebt) {
  FairShare shares;
  Share* busy = join(shares, 1);
  FairShare::charge(join(shares, 2), 10);
  FairShare::charge(join(shares, 3), 1000);
  shares.leave(AdapterKey{2});
  shares.leave(AdapterKey{3});
  FairShare::charge(busy, 500);
  EXPECT_EQ(join(shares, 2)->virtual_tokens(), 500);
  EXPECT_EQ(join(shares, 3)->virtual_tokens(), 1000);
}

TEST(FairShare, AfterAPauseOfAllNobodyStartsBelowTheLast) {
  FairShare shares;
  FairShare::charge(join(shares, 1), 70);
  shares.leave(AdapterKey{1});
  EXPECT_EQ(join(shares, 2)->virtual_tokens(), 70);
}

TEST(FairShare, AccountsOfIdleAdaptersAreBounded) {
  FairShare shares(8);
  const std::vector<ShareAccount*> active = join(shares, 5000)->accounts;
  for (int32_t key = 1; key <= 1000; ++key) {
    FairShare::charge(join(shares, key), 1001 - key);  // all end with a debt
    shares.leave(AdapterKey{key});
    EXPECT_LE(shares.account_count(), 8u);
    EXPECT_EQ(shares.share_count(), 1u);
  }
  EXPECT_EQ(active.at(0)->live_requests, 1);  // the active one was never forgotten
  EXPECT_EQ(join(shares, 5000)->accounts, active);
}

}  // namespace
}  // namespace choral::sched
