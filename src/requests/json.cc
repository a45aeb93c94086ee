#include "requests/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/size_text.h"

namespace choral::requests {
namespace {

constexpr int kMaxDepth = 64;

// What values take of memory once they are parsed, with what the allocator adds and lists that have grown to twice their need.
constexpr int64_t kValueBytes = 32;  // behind a comma
constexpr int64_t kObjectBytes = 112;
constexpr int64_t kArrayBytes = 80;  // with its first value
constexpr int64_t kKeyBytes = 160;   // its place in the object, and in the index of a large one
constexpr int64_t kTextBytes = 80;   // besides the bytes themselves

constexpr size_t kShown = 64;  // bytes of a text in a message

// From `mark` on; all of it where there is none.
std::string_view from(std::string_view mark, std::string_view text) {
  const size_t at = text.find(mark);
  return at == text.npos ? text : text.substr(at);
}

// Of text that is JSON; of other text the parser does not get that far.
class Weigher {
 public:
  explicit Weigher(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Stops where it is too deep or too much.
  Status weigh(std::string_view text) {
    int64_t text_bytes = 0;  // of the last
    for (size_t i = 0; i < text.size() && bytes_ <= most_bytes_; ++i) {
      switch (text[i]) {
        case '"': {
          const size_t begin = i++;
          while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
          text_bytes = static_cast<int64_t>(std::min(i, text.size()) - begin);
          bytes_ += kTextBytes + text_bytes;
          break;
        }
        case '{':
        case '[':
          bytes_ += text[i] == '{' ? kObjectBytes : kArrayBytes;
          if (++depth_ > kMaxDepth) return too_large("JSON nested deeper than {} levels", kMaxDepth);
          break;
        case '}':
        case ']': --depth_; break;
        case ',': bytes_ += kValueBytes; break;
        case ':': bytes_ += kKeyBytes + text_bytes; break;  // the index has the key once more
        default: break;
      }
    }
    return {};
  }

  int64_t bytes() const { return bytes_; }

 private:
  const int64_t most_bytes_;
  int64_t bytes_ = 0;
  int depth_ = 0;
};

}  // namespace

Status ParsedSize::add(std::string_view text, std::string_view what) {
  Weigher weigher(kMostBytes - bytes_);
  CHORAL_RETURN_IF_ERROR(weigher.weigh(text));
  if (weigher.bytes() > kMostBytes - bytes_) {
    return too_large("{} holds so many values that they take more than {} of memory, which is the most that is read", what,
                     size_text(kMostBytes));
  }
  bytes_ += weigher.bytes();
  return {};
}

Result<Json> parse_object(std::string_view text, std::string_view what) {
  ParsedSize size;
  return parse_object(text, what, size);
}

// Deep nesting and floods of values are refused before the parser sees them.
Result<Json> parse_object(std::string_view text, std::string_view what, ParsedSize& size) {
  CHORAL_RETURN_IF_ERROR(size.add(text, what));
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
