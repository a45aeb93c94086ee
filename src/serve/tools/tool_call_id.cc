#include "serve/tools/tool_call_id.h"

#include <string_view>

namespace choral::serve {

std::string make_tool_call_id(ToolFormat format, std::mt19937_64& generator) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bool mistral = format == ToolFormat::kMistral;
  std::string id = mistral ? "" : "call_";
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  for (int i = 0; i < (mistral ? 9 : 24); ++i) id += kLetters[letter(generator)];
  return id;
}

std::string make_tool_call_id(ToolFormat format) {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return make_tool_call_id(format, generator);
}

}  // namespace choral::serve
