// The first byte chooses a family (or, for 't', the request's side), the second how the text is cut into pieces. Whatever the
// pieces, the calls and the content are the same; arguments of a call that is given out whole are a JSON object; and no text
// disappears but what belongs to a call.
#include <simdjson.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "serve/tools/tool_call_parser.h"
#include "serve/tools/tools_request.h"

namespace {

using namespace choral::serve;
using Announce = ToolCallParser::Announce;

std::string parse(ToolFormat format, Announce announce, std::string_view text, size_t piece) {
  ToolCallParser parser(format, announce, [] { return std::string("id"); });
  std::string content;
  std::vector<std::string> calls;
  const auto add = [&](const AnswerDelta& delta) {
    content += delta.content;
    for (const ToolCallDelta& call : delta.calls) {
      if (call.index == calls.size()) {
        if (call.name.empty() || call.id.empty()) std::abort();
        calls.push_back(call.name + "(");
      } else if (call.index + 1 != calls.size() || !call.name.empty()) {
        std::abort();
      }
      calls.back() += call.arguments;
    }
  };
  for (size_t i = 0; i < text.size(); i += piece) {
    AnswerDelta delta;
    parser.push(text.substr(i, piece), delta);
    add(delta);
  }
  AnswerDelta last;
  parser.finish(last);
  add(last);
  if (calls.empty() && content != text) std::abort();
  for (const std::string& call : calls) {
    content += '\0';
    content += call;
    if (announce == Announce::kEarly) continue;
    simdjson::dom::parser json;
    const std::string arguments = call.substr(call.find('(') + 1);
    simdjson::dom::element element;
    const auto error = json.parse(arguments).get(element);
    // Numbers that no double holds are JSON all the same.
    if (error != simdjson::NUMBER_ERROR && (error || !element.is_object())) std::abort();
  }
  return content;
}

void request(std::string_view text) {
  const size_t cut = std::min(text.find('\0'), text.size());
  ToolsRequest request{text.substr(0, cut), text.substr(std::min(cut + 1, text.size())), {}};
  std::string param;
  const auto plan = plan_tools(request, {ToolFormat::kHermes, true, {}}, param);
  if (!plan.ok() && param.empty()) std::abort();
  if (!plan.ok() || plan->constraint.text.empty()) return;
  simdjson::dom::parser json;
  if (json.parse(plan->constraint.text).error()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] == 't') {
    request(text);
    return 0;
  }
  constexpr ToolFormat kFormats[] = {ToolFormat::kHermes, ToolFormat::kLlama3Json, ToolFormat::kMistral, ToolFormat::kDeepSeekV3,
                                     ToolFormat::kJson};
  const ToolFormat format = kFormats[data[0] % 5];
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    const std::string whole = parse(format, announce, text, std::max<size_t>(text.size(), 1));
    if (parse(format, announce, text, 1 + data[1] % 16) != whole) std::abort();
    if (parse(format, announce, text, 1) != whole) std::abort();
  }
  return 0;
}
