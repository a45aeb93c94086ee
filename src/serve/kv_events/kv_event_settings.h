// What --kv-events-config says: vLLM's object, with vLLM's defaults, and `bind` of our own. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

struct KvEventSettings {
  bool enabled = false;
  std::string endpoint = "tcp://*:5557";  // where events are published
  bool bind = true;                       // is there for others, rather than reaching one
  std::string replay_endpoint;            // where those of the past can be asked for; empty: nowhere
  std::string topic;
  int32_t buffer_steps = 10'000;     // batches that can be asked for once more
  int32_t hwm = 100'000;             // messages that wait for a slow reader; more are lost to it
  int32_t max_queue_size = 100'000;  // batches that wait to be published; more are lost to all
};

// Empty: not enabled.
Result<KvEventSettings> kv_event_settings(std::string_view json);

}  // namespace choral::serve
