#include "serve/keys/rate_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "serve/keys/request_limits.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;
using Ticket = RateLimiter::Ticket;

// 10 tokens a second, 100 at once.
constexpr RateLimit kTokens{.max_in_flight = 0, .tokens_per_s = 10, .burst_tokens = 100};

struct Tried {
  Result<Ticket> ticket;
  double retry_after_s;
  bool ok() const { return ticket.ok(); }
};
Tried admit(RateLimiter& limiter, std::string_view name, int64_t tokens, double now) {
  double retry = -1;
  auto ticket = limiter.admit(name, tokens, now, retry);
  return {std::move(ticket), retry};
}
// A request that used all it asked for.
bool use(RateLimiter& limiter, std::string_view name, int64_t tokens, double now) {
  auto tried = admit(limiter, name, tokens, now);
  if (tried.ok()) tried.ticket->settle(tokens);
  return tried.ok();
}

TEST(RateLimiter, InFlight) {
  RateLimiter limiter("key", {.max_in_flight = 2});
  auto one = admit(limiter, "a", 5, 0), two = admit(limiter, "a", 5, 0);
  ASSERT_TRUE(one.ok() && two.ok());
  const auto third = admit(limiter, "a", 5, 0);
  EXPECT_EQ(third.ticket.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.ticket.status().message(), HasSubstr("key 'a' has 2 requests in flight"));
  EXPECT_EQ(third.retry_after_s, 1);
  EXPECT_TRUE(admit(limiter, "b", 5, 0).ok()) << "others are not affected";
  one.ticket = Ticket();
  EXPECT_EQ(limiter.in_flight("a"), 1);
  EXPECT_TRUE(admit(limiter, "a", 5, 0).ok());
}

TEST(RateLimiter, TokensRefillSteadily) {
  RateLimiter limiter("key", kTokens);
  EXPECT_TRUE(use(limiter, "a", 100, 1000));
  const auto refused = admit(limiter, "a", 30, 1000.5);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.retry_after_s, 3) << "25 tokens are missing";
  EXPECT_FALSE(use(limiter, "a", 30, 1002.9));
  EXPECT_TRUE(use(limiter, "a", 30, 1003.001));
  EXPECT_TRUE(use(limiter, "a", 100, 2000)) << "a long pause fills the bucket";
  EXPECT_FALSE(use(limiter, "a", 10, 2000)) << "and no more than that";
}

TEST(RateLimiter, WhatWasNotUsedComesBackAtTheEnd) {
  RateLimiter limiter("key", kTokens);
  {
    auto one = admit(limiter, "a", 90, 0);
    ASSERT_TRUE(one.ok());
    EXPECT_FALSE(admit(limiter, "a", 20, 0).ok()) << "it may still use them";
    one.ticket->settle(40);
  }
  EXPECT_TRUE(use(limiter, "a", 60, 0));
  EXPECT_FALSE(use(limiter, "a", 1, 0));
  { const auto refused_by_engine = admit(limiter, "b", 100, 0); }
  EXPECT_TRUE(use(limiter, "b", 100, 0)) << "a request that never ran costs nothing";
  {
    auto liar = admit(limiter, "c", 10, 0);
    liar.ticket->settle(-1'000'000);
  }
  EXPECT_TRUE(use(limiter, "c", 100, 0));
  EXPECT_FALSE(use(limiter, "c", 1, 0)) << "nothing is given back that was not taken";
}

TEST(RateLimiter, WhoUsesMoreThanExpectedPaysForIt) {
  RateLimiter limiter("key", kTokens);
  {
    auto dense = admit(limiter, "a", 25, 0);  // a text of many more tokens than its bytes tell
    dense.ticket->settle(100);
  }
  EXPECT_FALSE(use(limiter, "a", 1, 0));
  EXPECT_TRUE(use(limiter, "a", 100, 10.1));
  {
    auto larger = admit(limiter, "a", 100, 30);
    larger.ticket->settle(300);
  }
  EXPECT_FALSE(use(limiter, "a", 1, 49)) << "it is paid for afterwards";
  EXPECT_TRUE(use(limiter, "a", 1, 50.2));
}

TEST(RateLimiter, ARequestLargerThanTheBucketWaitsUntilItIsFull) {
  RateLimiter limiter("key", kTokens);
  EXPECT_TRUE(use(limiter, "a", 300, 0));
  EXPECT_FALSE(use(limiter, "a", 1, 19)) << "it is paid for afterwards";
  EXPECT_TRUE(use(limiter, "a", 1, 20.2));
  const auto refused = admit(limiter, "a", 300, 20.2);
  EXPECT_FALSE(refused.ok());
  EXPECT_GE(refused.retry_after_s, 9);
  EXPECT_TRUE(use(limiter, "a", 300, 20.2 + refused.retry_after_s)) << "Retry-After was true";
}

TEST(RateLimiter, ClockJumpsGiveAndTakeNothing) {
  RateLimiter limiter("key", kTokens);
  EXPECT_TRUE(use(limiter, "a", 100, 1000));
  EXPECT_FALSE(use(limiter, "a", 1, 10)) << "back";
  EXPECT_FALSE(use(limiter, "a", 1, -1e300));
  EXPECT_FALSE(use(limiter, "a", 1, 1000));
  EXPECT_TRUE(use(limiter, "a", 10, 1001.001)) << "and it goes on from where it was";
  EXPECT_TRUE(use(limiter, "a", 100, 1e300)) << "far ahead: a full bucket, not an endless one";
  EXPECT_FALSE(use(limiter, "a", 1, 1e300));
  const auto refused = admit(limiter, "a", 100, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(refused.ok());
  EXPECT_LE(refused.retry_after_s, RateLimiter::kMaxRetry_s);
}

TEST(RateLimiter, RetryAfterHasAnEnd) {
  RateLimiter limiter("key", {.tokens_per_s = 1e-6, .burst_tokens = 100});
  EXPECT_TRUE(use(limiter, "a", 100, 0));
  EXPECT_EQ(admit(limiter, "a", 100, 0).retry_after_s, RateLimiter::kMaxRetry_s);
}

TEST(RateLimiter, NamesAreBoundedAndNobodyForgottenEarly) {
  RateLimiter limiter("adapter", kTokens, 3);
  EXPECT_TRUE(use(limiter, "spent", 100, 0));
  auto running = admit(limiter, "running", 0, 0);
  EXPECT_TRUE(use(limiter, "idle", 0, 0));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(use(limiter, "new-" + std::to_string(i), 0, 0)) << "idle ones make room";
  EXPECT_LE(limiter.tracked(), 3U);
  EXPECT_FALSE(use(limiter, "spent", 1, 0)) << "who has spent its tokens is remembered";
  EXPECT_EQ(limiter.in_flight("running"), 1);
  auto third = admit(limiter, "third", 0, 0);
  const auto fourth = admit(limiter, "fourth", 0, 0);
  EXPECT_EQ(fourth.ticket.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(fourth.retry_after_s, 1);
}

TEST(RateLimiter, WithoutALimitNothingIsTracked) {
  RateLimiter limiter("key", {});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(use(limiter, std::to_string(i), 1'000'000'000, 0));
  EXPECT_EQ(limiter.tracked(), 0U);
}

TEST(RateLimiter, ManyThreadsNeverExceedIt) {
  RateLimiter limiter("key", {.max_in_flight = 3});
  std::atomic<int> now{0}, most{0}, given{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const auto tried = admit(limiter, "a", 1, 0);
        if (!tried.ok()) continue;
        ++given;
        const int here = ++now;
        for (int seen = most; here > seen && !most.compare_exchange_weak(seen, here);) {
        }
        --now;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GT(given, 0);
  EXPECT_EQ(limiter.in_flight("a"), 0);
}

TEST(RequestLimits, AllOrNone) {
  RequestLimits limits({.max_in_flight = 2}, {.max_in_flight = 1});
  const std::vector<AdapterUse> sql{{.name = "sql"}}, both{{.name = "yoda"}, {.name = "sql"}},
      twice{{.name = "yoda"}, {.name = "yoda"}};
  auto first = limits.admit("alice", sql, 10, 0);
  ASSERT_TRUE(first.status.ok());
  const auto refused = limits.admit("alice", both, 10, 0);
  EXPECT_EQ(refused.status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(refused.by_adapter);
  EXPECT_EQ(refused.retry_after_s, 1);
  EXPECT_THAT(refused.status.message(), HasSubstr("adapter 'sql'"));
  auto second = limits.admit("alice", twice, 10, 0);
  EXPECT_TRUE(second.status.ok()) << "the refused one holds nothing, and an adapter named twice is one";
  const auto third = limits.admit("alice", {}, 10, 0);
  EXPECT_FALSE(third.status.ok());
  EXPECT_FALSE(third.by_adapter);
  EXPECT_TRUE(limits.admit("bob", {}, 10, 0).status.ok());
  first.grant = {};
  EXPECT_TRUE(limits.admit("bob", sql, 10, 0).status.ok());
}

}  // namespace
}  // namespace choral::serve
