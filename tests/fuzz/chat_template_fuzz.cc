// A template and its messages from one input, divided by the first zero byte. Nothing may crash, leak or run long. The number of
// steps is small, texts may be large and one is given (`big`): an operation that does not pay for what it reads is seen by the
// time limit of `./dev fuzz`, a list that is made before its length is looked at by the memory limit.
#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using choral::text::ChatInput;
  using choral::text::ChatTemplate;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\0');
  const std::string_view source = all.substr(0, cut);
  std::string_view messages =
      R"([{"role": "user", "content": "h\u00e9 <b>"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]}])";
  if (cut != std::string_view::npos) messages = all.substr(cut + 1);

  choral::text::jinja::RenderLimits limits;
  limits.max_template_bytes = 1 << 14;
  limits.max_parse_depth = 60;
  limits.max_eval_depth = 150;
  limits.max_steps = 200'000;
  limits.max_allocated_bytes = 1 << 25;
  limits.max_string_bytes = 1 << 23;
  limits.max_elements = 30000;
  limits.max_value_depth = 40;
  const auto chat = ChatTemplate::parse(std::string(source), limits);
  if (!chat.ok()) return 0;
  ChatInput input;
  input.messages_json = messages;
  input.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
  static const std::string kKwargs =
      R"({"n": 7, "s": "Hello World", "d": {"b": 1, "A": [true]}, "big": ")" + std::string(1 << 15, 'a') + "\"}";
  input.kwargs_json = kKwargs;
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.now_unix_s = 0;
  const auto prompt = chat->apply(input);
  static_cast<void>(prompt.ok());
  return 0;
}
