#include "serve/kv_events/kv_event_settings.h"

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "io/config_map.h"

namespace choral::serve {
namespace {

constexpr const char* kFlag = "--kv-events-config";
constexpr io::JsonLimits kLimits{.max_bytes = 64 << 10, .max_depth = 4, .max_values = 100};
constexpr io::IntRange kCounts{1, 1'000'000};
constexpr std::array<std::string_view, 9> kKeys{
    "enable_kv_cache_events", "publisher", "endpoint",       "bind", "replay_endpoint",
    "buffer_steps",           "hwm",       "max_queue_size", "topic"};

// As vLLM guesses.
bool looks_bound(std::string_view endpoint) {
  const auto has = [endpoint](std::string_view part) { return endpoint.find(part) != endpoint.npos; };
  return has("*") || has("::") || has("0.0.0.0") || endpoint.starts_with("ipc://");
}

Status check_endpoint(std::string_view key, std::string_view endpoint) {
  if (endpoint.starts_with("tcp://") || endpoint.starts_with("ipc://")) return {};
  return invalid_argument("{}: {} is '{}'; write tcp://*:5557, tcp://HOST:PORT or ipc://PATH", kFlag, key, printable(endpoint));
}

Status read(const io::ConfigMap& json, KvEventSettings& out) {
  for (const auto& [key, value] : json.members()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      return invalid_argument("{}: there is no key '{}'; there are {}", kFlag, printable(key), fmt::join(kKeys, ", "));
  }
  CHORAL_TRY(out.enabled, json.get_bool_or("enable_kv_cache_events", false));
  CHORAL_TRY(const auto publisher, json.get_string_or("publisher", "zmq"));
  if (publisher != "zmq" && publisher != "null")
    return invalid_argument("{}: publisher is '{}'; choose zmq or null", kFlag, printable(publisher));
  if (publisher == "null") out.enabled = false;
  CHORAL_TRY(out.endpoint, json.get_string_or("endpoint", out.endpoint));
  CHORAL_RETURN_IF_ERROR(check_endpoint("endpoint", out.endpoint));
  CHORAL_TRY(out.bind, json.get_bool_or("bind", looks_bound(out.endpoint)));
  CHORAL_TRY(out.replay_endpoint, json.get_string_or("replay_endpoint", ""));
  if (!out.replay_endpoint.empty()) CHORAL_RETURN_IF_ERROR(check_endpoint("replay_endpoint", out.replay_endpoint));
  CHORAL_TRY(out.topic, json.get_string_or("topic", ""));
  const auto count = [&json](const char* key, int32_t& value) -> Status {
    CHORAL_TRY(const int64_t read, json.get_int_or(key, value, kCounts));
    value = static_cast<int32_t>(read);
    return {};
  };
  CHORAL_RETURN_IF_ERROR(count("buffer_steps", out.buffer_steps));
  CHORAL_RETURN_IF_ERROR(count("hwm", out.hwm));
  return count("max_queue_size", out.max_queue_size);
}

}  // namespace

Result<KvEventSettings> kv_event_settings(std::string_view json) {
  KvEventSettings settings;
  if (json.empty()) return settings;
  const auto parsed = io::ConfigMap::parse_json(json, kFlag, kLimits);
  if (!parsed.ok()) return invalid_argument("{}", parsed.status().message());
  if (const Status read_well = read(*parsed, settings); !read_well.ok())
    return invalid_argument("{}", read_well.message());  // what is wrong with a flag is the user's
  return settings;
}

}  // namespace choral::serve
