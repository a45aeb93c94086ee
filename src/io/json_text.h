// What the readers of JSON in this folder share: opening a text whose top must be an object, simdjson's error codes as Status,
// and the checks simdjson's on-demand parser leaves to its caller. Internal to io. Not thread-safe.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace choral::io {

// kCorrupt with simdjson's words; memory trouble is kResourceExhausted.
Status json_status(simdjson::error_code code);

// Escapes can spell lone surrogates, so UTF-8 is checked again after unescaping.
Status check_utf8(std::string_view text);

// The grammar of RFC 8259.
bool is_json_number(std::string_view token);

class JsonDocument {
 public:
  // Copies `text` (the parser needs room behind it), checks its UTF-8 and quotes, and finds the object at the top.
  Status open(std::string_view text);
  simdjson::ondemand::object root() { return root_; }
  // A key or a value as text, which lives as long as this. The parser has room for texts of its own, but goes on without it when
  // there was no memory for it.
  simdjson::simdjson_result<std::string_view> text_of(simdjson::simdjson_result<simdjson::ondemand::raw_json_string> string);
  Status expect_end();  // nothing may follow the object; call once it has been walked
  int64_t line();       // where the walk stands, from 1

 private:
  simdjson::padded_string text_;
  std::unique_ptr<uint8_t[]> texts_;  // without escapes
  uint8_t* texts_end_ = nullptr;
  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
  simdjson::ondemand::object root_;
};

}  // namespace choral::io
