#include "sched/fair_share.h"

#include <gtest/gtest.h>

namespace choral::sched {
namespace {

TEST(FairShare, AnAdapterHasOneAccount) {
  FairShare shares;
  ShareAccount* account = shares.join(5);
  EXPECT_EQ(shares.join(5), account);
  EXPECT_EQ(account->live_requests, 2);
  EXPECT_NE(shares.join(6), account);
}

TEST(FairShare, ANewcomerStartsAtTheSmallestActiveAccount) {
  FairShare shares;
  ShareAccount *rich = shares.join(1), *poor = shares.join(2);
  FairShare::charge(rich, 100);
  FairShare::charge(poor, 60);
  EXPECT_EQ(shares.join(3)->virtual_tokens, 60);
}

TEST(FairShare, IdlingSavesNoCreditAndForgivesNoDebt) {
  FairShare shares;
  ShareAccount* busy = shares.join(1);
  ShareAccount* lazy = shares.join(2);
  ShareAccount* greedy = shares.join(3);
  FairShare::charge(lazy, 10);
  FairShare::charge(greedy, 1000);
  shares.leave(lazy);
  shares.leave(greedy);
  FairShare::charge(busy, 500);
  EXPECT_EQ(shares.join(2)->virtual_tokens, 500);
  EXPECT_EQ(shares.join(3)->virtual_tokens, 1000);
}

TEST(FairShare, AfterAPauseOfAllNobodyStartsBelowTheLast) {
  FairShare shares;
  ShareAccount* last = shares.join(1);
  FairShare::charge(last, 70);
  shares.leave(last);
  EXPECT_EQ(shares.join(2)->virtual_tokens, 70);
}

TEST(FairShare, AccountsOfIdleAdaptersAreBounded) {
  FairShare shares(8);
  ShareAccount* active = shares.join(-1);
  for (int32_t key = 0; key < 1000; ++key) {
    ShareAccount* account = shares.join(key);
    FairShare::charge(account, 1000 - key);  // all end with a debt
    shares.leave(account);
    EXPECT_LE(shares.account_count(), 8u);
  }
  EXPECT_EQ(active->live_requests, 1);  // the active one was never forgotten
  EXPECT_EQ(shares.join(-1), active);
}

}  // namespace
}  // namespace choral::sched
