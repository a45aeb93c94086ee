#include "serve/answers/json_string.h"

#include <fmt/format.h>

#include <iterator>

#include "base/utf8.h"
#include "text/grammar/json_automaton.h"

namespace choral::serve {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void escape(char c, std::string& out) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (static_cast<unsigned char>(c) < 0x20) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
  } else {
    out += c;
  }
}

}  // namespace

void JsonString::push(char c, std::string& out) {
  if (partial_.empty() && static_cast<unsigned char>(c) < 0x80) return escape(c, out);
  partial_ += c;
  drain(false, out);
}

void JsonString::finish(std::string& out) { drain(true, out); }

void JsonString::drain(bool is_all, std::string& out) {
  while (!partial_.empty()) {
    const Utf8Step step = check_utf8(partial_);
    if (step.length == 0 && step.incomplete && !is_all) return;
    if (step.length == 0) {
      out += kReplacement;
      partial_.erase(0, step.broken);
    } else if (step.length == 1) {
      escape(partial_.front(), out);
      partial_.erase(0, 1);
    } else {
      out.append(partial_, 0, step.length);
      partial_.erase(0, step.length);
    }
  }
}

bool is_json_value(std::string_view text) {
  const text::JsonAutomaton json({.max_depth = 60, .max_white_space = 4096, .max_digits = 4096, .max_exponent_digits = 8});
  text::JsonState state = text::JsonAutomaton::start_of_value();
  for (const char c : text) {
    if (!json.step(state, static_cast<uint8_t>(c))) return false;
  }
  return text::JsonAutomaton::complete(state);
}

}  // namespace choral::serve
