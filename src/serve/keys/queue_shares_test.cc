#include "serve/keys/queue_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;
using Place = QueueShares::Place;

// Clients that send one answer after another to an engine with a batch of 4 and 12 places in the queue, in which nothing ends.
class Crowd {
 public:
  // How many of `most` are taken before the first that is not.
  int send(const std::string& client, int most, int64_t answers = 1) {
    int taken = 0;
    for (; taken < most; ++taken) {
      auto place = shares_.take("client " + client, answers, queue());
      refused_ = place.status();
      if (!place.ok() || in_flight() + answers > kBatch + kMostWaiting) break;
      places_.push_back(std::move(*place));
      answers_.push_back(answers);
    }
    return taken;
  }
  const Status& refused() const { return refused_; }

 private:
  static constexpr int64_t kBatch = 4, kMostWaiting = 12;
  int64_t in_flight() const {
    int64_t all = 0;
    for (const int64_t each : answers_) all += each;
    return all;
  }
  QueueShares::Queue queue() const {
    return {.batch = kBatch, .waiting = std::max<int64_t>(in_flight() - kBatch, 0), .most_waiting = kMostWaiting};
  }

  QueueShares shares_;
  std::vector<Place> places_;
  std::vector<int64_t> answers_;
  Status refused_;
};

TEST(QueueShares, OneLeavesHalfOfTheQueueToOthers) {
  Crowd crowd;
  EXPECT_EQ(crowd.send("greedy", 100), 4 + 6);
  EXPECT_EQ(crowd.refused().code(), Code::kResourceExhausted);
  EXPECT_THAT(crowd.refused().message(), HasSubstr("client greedy has 10 answers in flight"));
  EXPECT_EQ(crowd.send("second", 3), 3);
  EXPECT_EQ(crowd.send("greedy", 1), 0);
  EXPECT_EQ(crowd.send("third", 2), 2);
}

TEST(QueueShares, AnAnswerIsAPlaceHoweverItWasAskedFor) {
  Crowd crowd;
  EXPECT_EQ(crowd.send("greedy", 100, 5), 2) << "two bodies of five prompts";
  EXPECT_EQ(crowd.send("greedy", 1), 0);
  EXPECT_EQ(crowd.send("other", 1, 9), 0);
  EXPECT_EQ(crowd.refused().code(), Code::kTooLarge) << "waiting would not help";
  EXPECT_THAT(crowd.refused().message(), HasSubstr("one request may ask for 8"));
}

TEST(QueueShares, WhatEndsMakesRoomAPieceAtATime) {
  QueueShares shares;
  const QueueShares::Queue full{.batch = 1, .waiting = 3, .most_waiting = 8};
  auto body = shares.take("a", 4, {.batch = 1, .waiting = 0, .most_waiting = 8});
  ASSERT_TRUE(body.ok());
  Place one = body->split(1), two = body->split(3);
  EXPECT_FALSE(shares.take("a", 2, full).ok());
  two = Place();
  EXPECT_TRUE(shares.take("a", 2, full).ok());
  one = std::move(two);
  EXPECT_TRUE(shares.take("a", 3, full).ok()) << "it has none left";
}

TEST(QueueShares, WhoHasNothingInFlightIsTheEnginesToRefuse) {
  QueueShares shares;
  EXPECT_TRUE(shares.take("new", 1, {.batch = 1, .waiting = 8, .most_waiting = 8}).ok());
}

}  // namespace
}  // namespace choral::serve
