#include "serve/http/sse.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

TEST(Sse, FormatsEvents) {
  EXPECT_EQ(sse_data("{}"), "data: {}\n\n");
  EXPECT_EQ(sse_data(""), "data: \n\n");
  EXPECT_EQ(sse_event("error", "x"), "event: error\ndata: x\n\n");
  EXPECT_EQ(sse_keep_alive(), ": keep-alive\n\n");
}

TEST(Sse, NoTextEndsItsEventEarly) {
  EXPECT_EQ(sse_data("a\nb\r\nc\rd\n\nevent: e"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \ndata: event: e\n\n");
  EXPECT_EQ(sse_event("a\ndata: b", "c"), "event: a\ndata: c\n\n");
}

}  // namespace
}  // namespace choral::serve
