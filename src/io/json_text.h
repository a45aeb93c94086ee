// What the readers of JSON in this folder share: opening a text whose top must be an object, simdjson's error codes as Status,
// and the checks simdjson's on-demand parser leaves to its caller. Internal to io. Not thread-safe.
#pragma once

#include <simdjson.h>

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
  Status expect_end();  // nothing may follow the object; call once it has been walked
  int64_t line();       // where the walk stands, from 1

 private:
  simdjson::padded_string text_;
  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
  simdjson::ondemand::object root_;
};

}  // namespace choral::io
