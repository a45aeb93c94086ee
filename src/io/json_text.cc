#include "io/json_text.h"

#include <algorithm>

namespace choral::io {

Status json_status(simdjson::error_code code) {
  if (code == simdjson::SUCCESS) return {};
  if (code == simdjson::MEMALLOC) return resource_exhausted("no memory to parse the JSON text");
  return corrupt("broken JSON: {}", simdjson::error_message(code));
}

Status check_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return {};
  return corrupt("broken JSON: a string is not valid UTF-8 once unescaped (a lone surrogate)");
}

bool is_json_number(std::string_view token) {
  size_t i = 0;
  const auto at = [&] { return i < token.size() ? token[i] : '\0'; };
  const auto digits = [&] {
    const size_t start = i;
    while (at() >= '0' && at() <= '9') ++i;
    return i > start;
  };
  if (at() == '-') ++i;
  if (at() == '0') {
    ++i;
  } else if (!digits()) {
    return false;
  }
  if (at() == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (at() == 'e' || at() == 'E') {
    ++i;
    if (at() == '+' || at() == '-') ++i;
    if (!digits()) return false;
  }
  return i == token.size();
}

Status JsonDocument::open(std::string_view text) {
  text_ = simdjson::padded_string(text);
  if (!text.empty() && text_.data() == nullptr) return resource_exhausted("no memory for {} bytes of JSON text", text.size());
  // Four bytes at most for an escape of six, and nothing grows; the padding is what the parser writes ahead.
  texts_ = std::make_unique_for_overwrite<uint8_t[]>(text.size() + simdjson::SIMDJSON_PADDING);
  texts_end_ = texts_.get();
  CHORAL_RETURN_IF_ERROR(json_status(parser_.iterate(text_).get(document_)));
  simdjson::ondemand::json_type type = simdjson::ondemand::json_type::null;
  CHORAL_RETURN_IF_ERROR(json_status(document_.type().get(type)));
  if (type != simdjson::ondemand::json_type::object) return corrupt("a JSON object is needed at the top");
  return json_status(document_.get_object().get(root_));
}

simdjson::simdjson_result<std::string_view> JsonDocument::text_of(
    simdjson::simdjson_result<simdjson::ondemand::raw_json_string> string) {
  simdjson::ondemand::raw_json_string raw;
  if (const auto error = std::move(string).get(raw); error != simdjson::SUCCESS) return error;
  return parser_.unescape(raw, texts_end_);
}

Status JsonDocument::expect_end() {
  if (document_.current_location().error() == simdjson::OUT_OF_BOUNDS) return {};
  return corrupt("broken JSON: something follows the object at the top");
}

int64_t JsonDocument::line() {
  const char* at = nullptr;
  const char* end = text_.data() + text_.size();
  if (document_.current_location().get(at) != simdjson::SUCCESS || at < text_.data() || at > end) at = end;
  return 1 + std::count(static_cast<const char*>(text_.data()), at, '\n');
}

}  // namespace choral::io
