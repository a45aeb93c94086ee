#include "serve/tools/call_head.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "serve/tools/json_call_reader.h"
#include "serve/tools/tool_format.h"

namespace choral::serve {
namespace {

bool is_name_character(char c) { return is_function_name({&c, 1}, true); }

}  // namespace

bool object_or_array(CallCursor& text, bool& array) {
  text.space();
  if (text.peek("{")) return true;
  if (!text.take("[")) return false;
  array = true;
  text.space();
  return text.peek("{");
}

bool mistral_head(CallCursor& text, std::string& name) {
  name = text.take_while(is_name_character);
  if (!is_function_name(name, true)) return false;
  if (text.take(marker::kMistralId)) text.take_while([](char c) { return is_function_name({&c, 1}, false); });
  static_cast<void>(text.take(marker::kMistralArguments));
  text.space();
  return text.peek("{");
}

bool deepseek_head(CallCursor& text, std::string& name) {
  text.space();
  if (!text.take(marker::kDeepSeekCallBegin)) return false;
  const auto first = text.take_until(marker::kDeepSeekSeparator);
  if (!first) return false;
  text.space();
  if (text.peek("{")) {
    name = trimmed(*first);
  } else {
    const auto line = text.take_until("\n");
    if (!line) return false;
    name = trimmed(*line);
    text.space();
    if (text.take("```")) text.take_while(is_name_character);
    text.space();
    if (!text.peek("{")) return false;
  }
  return is_function_name(name, true);
}

bool fence(CallCursor& text) {
  constexpr std::array<std::string_view, 5> kWords = {"", "json", "tool_call", "tool_calls", "tool_code"};
  text.space();
  if (!text.take("```")) return false;
  const auto word = text.take_until("\n");
  return word && std::find(kWords.begin(), kWords.end(), trimmed(*word)) != kWords.end();
}

}  // namespace choral::serve
