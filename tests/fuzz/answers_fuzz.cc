// The first byte chooses a form of calls or of thoughts (or, for 't', the request's side) and whether the answer was cut, the
// second how the text is divided into pieces. Whatever the pieces, thoughts, content and calls are the same; arguments of a call
// that is given out whole are a JSON object; and no text disappears but what belongs to a call or to thoughts.
#include <simdjson.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/answers/answer_reader.h"
#include "serve/answers/reasoning_tokens.h"
#include "serve/tools/tools_request.h"

namespace {

using namespace choral::serve;

// Sizes of pieces from a seed: 1 to 16 bytes, now and then many.
struct Pieces {
  uint32_t state;
  size_t next() {
    state = state * 1664525 + 1013904223;
    return (state >> 24) % 8 == 0 ? 1 + (state >> 16) % 1024 : 1 + (state >> 16) % 16;
  }
};

// The cases in the order of the first byte, later ones from its end: earlier seeds count on them.
AnswerReading reading_of(size_t chosen) {
  constexpr ToolFormat kFormats[] = {
      ToolFormat::kHermes, ToolFormat::kLlama3Json, ToolFormat::kMistral,  ToolFormat::kDeepSeekV3,  ToolFormat::kJson,
      ToolFormat::kJson,   ToolFormat::kQwen3Coder, ToolFormat::kGlm45,    ToolFormat::kKimiK2,      ToolFormat::kPythonic,
      ToolFormat::kGemma,  ToolFormat::kGranite,    ToolFormat::kPhi4Mini, ToolFormat::kDeepSeekV31, ToolFormat::kLlama4Pythonic};
  static const auto types = std::make_shared<const ParameterTypes>(ParameterTypes::of_tools(
      R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"s":{"type":"string"},"i":{"type":"integer"}}}}}])"));
  AnswerReading reading;
  reading.reads_calls = true;
  reading.calls.make_id = [] { return std::string("id"); };
  reading.calls.types = types;
  constexpr ToolFormat kLater[] = {ToolFormat::kGemma4, ToolFormat::kSeedOss, ToolFormat::kOlmo3, ToolFormat::kMiniMaxM2};
  if (const size_t from_end = 0x7F - chosen; from_end < std::size(kLater)) {
    reading.calls.format = kLater[from_end];
    return reading;
  }
  if (chosen < std::size(kFormats)) {
    reading.calls.format = kFormats[chosen];
    if (chosen == 5) reading.calls.only_arguments_of = "f";
    return reading;
  }
  chosen -= std::size(kFormats);
  const ThoughtMarks& marks = all_thought_marks()[chosen / 2 % all_thought_marks().size()];
  reading.thoughts = &marks;
  reading.calls.format = marks.is_harmony          ? ToolFormat::kOpenAI
                         : marks.also_ends.empty() ? ToolFormat::kHermes
                                                   : ToolFormat::kKimiK2;
  if (chosen % 2 == 1) reading.prompt_end = marks.begins[0];
  return reading;
}

void expect_object(const std::string& text) {
  simdjson::dom::parser json;
  simdjson::dom::element element;
  const auto error = json.parse(text).get(element);
  // Numbers that no double holds are JSON all the same.
  if (error != simdjson::NUMBER_ERROR && (error || !element.is_object())) std::abort();
}

template <class Size>
std::string parse(const AnswerReading& reading, AnswerEnd end, std::string_view text, Size&& piece) {
  using Kind = AnswerEvent::Kind;
  AnswerReader reader{AnswerReading(reading)};
  ReadAnswer sum;
  size_t ended = 0, cut = 0;
  const auto add = [&](const AnswerEvents& events) {
    sum.add(events);
    for (const AnswerEvent& event : events) {
      if (event.kind == Kind::kCallBegin && (event.name.empty() || event.id.empty())) std::abort();
      if (event.kind == Kind::kCallEnd && event.call != ended++) std::abort();
      cut += event.cut;
    }
  };
  for (size_t i = 0; i < text.size();) {
    AnswerEvents events;
    const size_t bytes = piece();
    reader.push(text.substr(i, bytes), events);
    i += bytes;
    add(events);
  }
  AnswerEvents last;
  reader.finish(end, last);
  add(last);
  if (ended != sum.calls.size() || reader.calls() != ended) std::abort();
  if (sum.calls.empty() && reading.thoughts == nullptr && sum.content != text) std::abort();
  if (sum.reasoning.size() + sum.content.size() > text.size()) std::abort();
  if (cut > (end == AnswerEnd::kCut ? 1 : 0)) std::abort();
  std::string all = sum.reasoning + '\0' + sum.content;
  for (const ToolCall& call : sum.calls) {
    all += '\0' + call.id + '(' + call.name + '(' + call.arguments;
    if (reading.calls.announce == Announce::kWhole && !call.cut) expect_object(call.arguments);
  }
  return all;
}

void request(std::string_view text) {
  const size_t cut = std::min(text.find('\0'), text.size());
  ToolsRequest request{text.substr(0, cut), text.substr(std::min(cut + 1, text.size())), {}};
  std::string param;
  const auto plan = plan_tools(request, {ToolFormat::kHermes, true, {}}, param);
  if (!plan.ok() && param.empty()) std::abort();
  static_cast<void>(ParameterTypes::of_tools(request.tools));
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
  AnswerReading reading = reading_of(data[0] & 0x7F);
  const AnswerEnd end = data[0] < 128 ? AnswerEnd::kOver : AnswerEnd::kCut;
  for (const Announce announce : {Announce::kEarly, Announce::kWhole}) {
    reading.calls.announce = announce;
    const std::string whole = parse(reading, end, text, [&] { return text.size(); });
    if (parse(reading, end, text, [pieces = Pieces{data[1]}]() mutable { return pieces.next(); }) != whole) std::abort();
    if (parse(reading, end, text, [] { return 1; }) != whole) std::abort();
  }
  ReasoningTokens counter{AnswerReader(std::move(reading))};
  for (size_t i = 0; i < text.size(); ++i) counter.push(text.substr(i, 1));
  if (counter.count() > static_cast<int64_t>(text.size())) std::abort();
  return 0;
}
