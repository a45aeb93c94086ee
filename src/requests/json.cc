#include "requests/json.h"

#include <cmath>
#include <limits>

namespace choral::requests {
namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxKeys = 1 << 20;    // a hundred bytes each once read
constexpr int64_t kMaxValues = 1 << 22;  // prompts of token ids
constexpr size_t kShown = 64;            // bytes of a text in a message

// From `mark` on; all of it where there is none.
std::string_view from(std::string_view mark, std::string_view text) {
  const size_t at = text.find(mark);
  return at == text.npos ? text : text.substr(at);
}

// Deep nesting and floods of values are refused before the parser sees them.
Status check_shape(std::string_view text, std::string_view what) {
  int depth = 0;
  int64_t keys = 0, values = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++values;
      if (++depth > kMaxDepth) return too_large("JSON nested deeper than {} levels", kMaxDepth);
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    } else if (c == ':') {
      ++keys;
    }
  }
  if (keys > kMaxKeys) return too_large("JSON with {} keys; at most {} are read from {}", keys, kMaxKeys, what);
  if (values > kMaxValues) return too_large("JSON with {} values; at most {} are read from {}", values, kMaxValues, what);
  return {};
}

}  // namespace

Result<Json> parse_object(std::string_view text, std::string_view what) {
  CHORAL_RETURN_IF_ERROR(check_shape(text, what));
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) return invalid_argument("{} must be a JSON object, not {}", what, json.type_name());
    return json;
  } catch (const Json::out_of_range& e) {  // "[json.exception.out_of_range.406] number overflow parsing '1e400'"
    return invalid_argument("a number of {} is beyond what a double holds: {}", what, shown(from("'", e.what())));
  } catch (const Json::exception& e) {  // "[json.exception.parse_error.101] parse error at line 1, column 5: …"
    const std::string_view reason = from("column ", e.what());
    constexpr size_t kReason = 200;  // it quotes what was read last
    return corrupt("not JSON: {}{}", reason.substr(0, kReason), reason.size() > kReason ? "…" : "");
  }
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string shown(std::string_view text) {
  return text.size() <= kShown ? std::string(text) : std::string(text.substr(0, kShown)) + "…";
}

Status wrong_type(std::string_view name, std::string_view wanted, const Json& got) {
  return invalid_argument("'{}' must be {}, not {}", name, wanted, shown(dumped(got)));
}

Status read_value(std::string_view name, const Json& json, bool& out) {
  if (!json.is_boolean()) return wrong_type(name, "true or false", json);
  out = json.get<bool>();
  return {};
}

Status read_value(std::string_view name, const Json& json, int32_t& out) {
  const auto wrong = [&] { return wrong_type(name, "a whole number of at most 32 bits", json); };
  if (!json.is_number_integer()) return wrong();
  constexpr int64_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
  if (json.is_number_unsigned() ? json.get<uint64_t>() > static_cast<uint64_t>(kHigh) : json.get<int64_t>() < kLow)
    return wrong();
  out = json.get<int32_t>();
  return {};
}

Status read_value(std::string_view name, const Json& json, int64_t& out) {
  constexpr auto kHigh = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > kHigh))
    return wrong_type(name, "a whole number of at most 64 bits", json);
  out = json.get<int64_t>();
  return {};
}

Status read_value(std::string_view name, const Json& json, uint64_t& out) {
  if (!json.is_number_unsigned()) return wrong_type(name, "a whole number from 0 to 2^64-1", json);
  out = json.get<uint64_t>();
  return {};
}

Status read_value(std::string_view name, const Json& json, float& out) {
  if (!json.is_number()) return wrong_type(name, "a number", json);
  out = json.get<float>();
  if (!std::isfinite(out)) return wrong_type(name, "a number that a float holds", json);
  return {};
}

Status read_value(std::string_view name, const Json& json, double& out) {
  if (!json.is_number()) return wrong_type(name, "a number", json);
  out = json.get<double>();
  return {};
}

Status read_value(std::string_view name, const Json& json, std::string& out) {
  if (!json.is_string()) return wrong_type(name, "a string", json);
  out = json.get<std::string>();
  return {};
}

}  // namespace choral::requests
