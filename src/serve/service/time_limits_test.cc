#include "serve/service/time_limits.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

TEST(TimeLimits, AClientMayAskForLessOnly) {
  const TimeLimits limits{.timeout_s = 10, .queue_timeout_s = 0};
  Request request;
  limits.hold(request);
  EXPECT_EQ(request.timeout_s, 0) << "none of its own: the engine's";
  request.timeout_s = 4;
  request.queue_timeout_s = 99;
  limits.hold(request);
  EXPECT_EQ(request.timeout_s, 4);
  EXPECT_EQ(request.queue_timeout_s, 99) << "the server has none";
  request.timeout_s = 11;
  limits.hold(request);
  EXPECT_EQ(request.timeout_s, 10);
  request.timeout_s = -1;
  limits.hold(request);
  EXPECT_EQ(request.timeout_s, -1) << "for the engine to refuse";
}

}  // namespace
}  // namespace choral::serve
