// JSON in and out of values. In: strict UTF-8 JSON, bounded in depth and size. Out: what Python's json.dumps writes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace choral::text::jinja {

class Interpreter;

// invalid_argument with the byte offset; lone surrogates and invalid UTF-8 are refused. A key given twice keeps its last
// value. Integers past 64 bits stay exact but can only be printed.
Result<Value> read_json(std::string_view text, const RenderLimits& limits);

struct JsonStyle {
  bool ascii = false;                 // escape everything past ASCII
  std::optional<std::string> indent;  // one level; nothing: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};

Result<std::string> write_json(Interpreter& interp, const Value& value, const JsonStyle& style);
void append_json_text(std::string_view text, bool ascii, std::string* out);  // quoted

}  // namespace choral::text::jinja
