#include "serve/kv_events/zmq_library.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

TEST(ZmqLibrary, WhereThereIsNoneTheErrorSaysHowToGetIt) {
  const auto zmq = ZmqLibrary::load("libzmq-of-nobody.so");
  EXPECT_EQ(zmq.status().code(), Code::kUnavailable);
  EXPECT_THAT(zmq.status().message(), HasSubstr("apt-get install libzmq5"));
}

TEST(ZmqLibrary, AnotherLibraryIsNone) {
  const auto zmq = ZmqLibrary::load("libc.so.6");
  EXPECT_EQ(zmq.status().code(), Code::kUnsupported);
  EXPECT_THAT(zmq.status().message(), HasSubstr("zmq_ctx_new"));
}

}  // namespace
}  // namespace choral::serve
