#include "serve/kv_events/kv_event_settings.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

TEST(KvEventSettings, WhatIsNotSaidIsAsInVllm) {
  EXPECT_FALSE(kv_event_settings("")->enabled);
  EXPECT_FALSE(kv_event_settings("{}")->enabled);
  const auto settings = kv_event_settings(R"({"enable_kv_cache_events": true})");
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_TRUE(settings->enabled);
  EXPECT_EQ(settings->endpoint, "tcp://*:5557");
  EXPECT_EQ(settings->replay_endpoint, "");
  EXPECT_EQ(settings->topic, "");
  EXPECT_EQ(settings->buffer_steps, 10'000);
  EXPECT_EQ(settings->hwm, 100'000);
  EXPECT_EQ(settings->max_queue_size, 100'000);
}

TEST(KvEventSettings, EveryKeyIsRead) {
  const auto settings = kv_event_settings(R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "ipc:///tmp/events",
    "replay_endpoint": "tcp://*:5558", "buffer_steps": 5, "hwm": 6, "max_queue_size": 7, "topic": "kv@pod@model"})");
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_EQ(settings->endpoint, "ipc:///tmp/events");
  EXPECT_EQ(settings->replay_endpoint, "tcp://*:5558");
  EXPECT_EQ(settings->buffer_steps, 5);
  EXPECT_EQ(settings->hwm, 6);
  EXPECT_EQ(settings->max_queue_size, 7);
  EXPECT_EQ(settings->topic, "kv@pod@model");
  EXPECT_FALSE(kv_event_settings(R"({"enable_kv_cache_events": true, "publisher": "null"})")->enabled);
}

TEST(KvEventSettings, WhatCannotBeMeantIsRefusedByName) {
  const auto refused = [](std::string_view json) {
    const auto read = kv_event_settings(json);
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument) << json;
    return read.ok() ? "" : std::string(read.status().message());
  };
  EXPECT_THAT(refused("{"), HasSubstr("--kv-events-config"));
  EXPECT_THAT(refused(R"({"enabled": true})"), HasSubstr("'enabled'"));
  EXPECT_THAT(refused(R"({"publisher": "nats"})"), HasSubstr("'nats'"));
  EXPECT_THAT(refused(R"({"endpoint": "inproc://x"})"), HasSubstr("inproc://x"));
  EXPECT_THAT(refused(R"({"replay_endpoint": "5558"})"), HasSubstr("replay_endpoint"));
  EXPECT_THAT(refused(R"({"buffer_steps": 0})"), HasSubstr("buffer_steps"));
  EXPECT_THAT(refused(R"({"hwm": "many"})"), HasSubstr("hwm"));
}

TEST(KvEventSettings, ASocketIsBoundWhereVllmBindsIt) {
  const auto binds = [](const std::string& endpoint, const std::string& more = "") {
    return kv_event_settings(R"({"endpoint": ")" + endpoint + "\"" + more + "}")->bind;
  };
  EXPECT_TRUE(kv_event_settings("{}")->bind);
  for (const char* endpoint : {"tcp://*:5557", "tcp://[::]:5557", "tcp://0.0.0.0:5557", "ipc:///tmp/x", "tcp://127.0.0.1:*"})
    EXPECT_TRUE(binds(endpoint)) << endpoint;
  EXPECT_FALSE(binds("tcp://picker:5557"));
  EXPECT_TRUE(binds("tcp://10.0.0.5:5557", R"(, "bind": true)"));
  EXPECT_FALSE(binds("ipc:///tmp/x", R"(, "bind": false)"));
}

}  // namespace
}  // namespace choral::serve
