// The first byte chooses a family, or a named function (or, for 't', the request's side) and whether the answer was cut, the
// second how the text is divided into pieces. Whatever the pieces, the calls and the content are the same; arguments of a call
// that is given out whole are a JSON object; and no text disappears but what belongs to a call.
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
using End = ToolCallParser::End;

// Sizes of pieces from a seed: 1 to 16 bytes, now and then many.
struct Pieces {
  uint32_t state;
  size_t next() {
    state = state * 1664525 + 1013904223;
    return (state >> 24) % 8 == 0 ? 1 + (state >> 16) % 1024 : 1 + (state >> 16) % 16;
  }
};

template <class Size>
std::string parse(ToolCallParser parser, Announce announce, End end, std::string_view text, Size&& piece) {
  std::string content;
  std::vector<std::string> calls;
  size_t cut = 0;  // of the calls
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
      cut += call.cut;
    }
  };
  for (size_t i = 0; i < text.size();) {
    AnswerDelta delta;
    const size_t bytes = piece();
    parser.push(text.substr(i, bytes), delta);
    i += bytes;
    add(delta);
  }
  AnswerDelta last;
  parser.finish(end, last);
  add(last);
  if (calls.empty() && content != text) std::abort();
  if (cut > (end == End::kCut ? 1 : 0)) std::abort();
  for (const std::string& call : calls) {
    content += '\0';
    content += call;
    if (announce == Announce::kEarly || (cut > 0 && &call == &calls.back())) continue;
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
  const auto id = [] { return std::string("id"); };
  const int chosen = data[0] % 6;
  const End end = data[0] < 128 ? End::kOver : End::kCut;
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    const ToolCallParser parser =
        chosen == 5 ? ToolCallParser::of_arguments("f", announce, id) : ToolCallParser(kFormats[chosen], announce, id);
    const std::string whole = parse(parser, announce, end, text, [&] { return text.size(); });
    if (parse(parser, announce, end, text, [pieces = Pieces{data[1]}]() mutable { return pieces.next(); }) != whole) std::abort();
    if (parse(parser, announce, end, text, [] { return 1; }) != whole) std::abort();
  }
  return 0;
}
