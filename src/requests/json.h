// JSON that comes from outside: bounded in depth and memory before a parser sees it, members in the order they were written, and
// one reader a type of value whose errors name the field. For .cc files only: nlohmann's headers cost seconds each.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "requests/indexed_map.h"

namespace choral::requests {

using Json = nlohmann::basic_json<IndexedMap>;  // tools go to templates in the order they were written

// The memory that one request's JSON takes once it is parsed, text inside of text included: `{}` in a list is three bytes before
// and a hundred and fifty behind. Reckoned from above.
class ParsedSize {
 public:
  static constexpr int64_t kMostBytes = 128 << 20;  // four million token ids

  // too_large where it would be more; nothing is added then.
  Status add(std::string_view text, std::string_view what);
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// The object that the text is; what is wrong with it else. `what` names it in messages: "the line", "the body". `size`: of what
// was parsed for this request already.
Result<Json> parse_object(std::string_view text, std::string_view what, ParsedSize& size);
Result<Json> parse_object(std::string_view text, std::string_view what);

// As text, in which invalid UTF-8 is replaced.
std::string dumped(const Json& json);
// The beginning of a text that a message quotes.
std::string shown(std::string_view text);
// invalid_argument: "'NAME' must be WANTED, not …".
Status wrong_type(std::string_view name, std::string_view wanted, const Json& got);

Status read_value(std::string_view name, const Json& json, bool& out);
Status read_value(std::string_view name, const Json& json, int32_t& out);
Status read_value(std::string_view name, const Json& json, int64_t& out);
Status read_value(std::string_view name, const Json& json, uint64_t& out);
Status read_value(std::string_view name, const Json& json, float& out);
Status read_value(std::string_view name, const Json& json, double& out);
Status read_value(std::string_view name, const Json& json, std::string& out);

template <class T>
Status read_value(std::string_view name, const Json& json, std::optional<T>& out) {
  T value{};
  CHORAL_RETURN_IF_ERROR(read_value(name, json, value));
  out = std::move(value);
  return {};
}

template <class T>
Status read_value(std::string_view name, const Json& json, std::vector<T>& out) {
  if (!json.is_array()) return wrong_type(name, "an array", json);
  out.clear();
  for (const auto& entry : json) {
    const std::string place = fmt::format("{}[{}]", name, out.size());
    CHORAL_RETURN_IF_ERROR(read_value(place, entry, out.emplace_back()));
  }
  return {};
}

}  // namespace choral::requests
