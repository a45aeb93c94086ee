#include "engine/heartbeat.h"

#include <gtest/gtest.h>

namespace choral::engine {
namespace {

class HeartbeatTest : public ::testing::Test {
 protected:
  void take_step(int64_t tokens, double seconds) {
    heart_.begin_turn();
    heart_.begin_step(tokens);
    time_ += seconds;
    heart_.end_step();
    heart_.end_turn();
  }

  double time_ = 10;
  Heartbeat heart_{[this] { return time_; }};
};

TEST_F(HeartbeatTest, TellsWhatTheLoopIsAt) {
  heart_.begin_turn();
  time_ = 11;
  EXPECT_EQ(heart_.now().silent_s, 1);
  EXPECT_EQ(heart_.now().step_tokens, 0);
  heart_.begin_step(7);
  time_ = 15;
  EXPECT_EQ(heart_.now().silent_s, 4);
  EXPECT_EQ(heart_.now().step_tokens, 7);
  EXPECT_EQ(heart_.now().turn_age_s, 5);
  heart_.end_step();
  EXPECT_EQ(heart_.now().silent_s, 0);
  heart_.end_turn();
  time_ = 1000;
  EXPECT_EQ(heart_.now().silent_s, 0) << "a loop that waits for work is well";
  EXPECT_EQ(heart_.now().turn_age_s, 985);
}

TEST_F(HeartbeatTest, TheLimitGrowsWithTheTokens) {
  const double one = heart_.step_limit_s(1), many = heart_.step_limit_s(8000);
  EXPECT_GE(one, 30);
  EXPECT_GE(many, 8000 * 0.25);
  take_step(8000, 42);
  EXPECT_GE(heart_.step_limit_s(8000), 420) << "ten times what it took before";
  EXPECT_LE(heart_.step_limit_s(8000), 30 + 2 * 420);
  EXPECT_LE(heart_.step_limit_s(1), 30 + 420) << "a smaller step takes no longer";
  take_step(1, 0.05);
  EXPECT_LE(heart_.step_limit_s(1), 31);
  EXPECT_GE(heart_.step_limit_s(16000), 2 * 420) << "a larger one in proportion";
}

TEST_F(HeartbeatTest, OneSlowStepIsForgotten) {
  take_step(4, 1000);
  EXPECT_GE(heart_.step_limit_s(4), 10'000);
  for (int i = 0; i < 2000; ++i) take_step(4, 0.01);
  EXPECT_LE(heart_.step_limit_s(4), 31);
}

TEST_F(HeartbeatTest, ALoopThatHangsBetweenStepsIsNotAlive) {
  heart_.begin_turn();
  time_ += 29;
  EXPECT_TRUE(heart_.now().is_alive());
  time_ += 2;
  EXPECT_FALSE(heart_.now().is_alive());
}

}  // namespace
}  // namespace choral::engine
