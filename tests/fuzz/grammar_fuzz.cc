// The first byte chooses what the rest is: a JSON schema, a structural tag, an EBNF grammar or a regular expression to be
// checked, a JSON text that the automaton and a parser must judge alike, choices, one a line, each of which must be accepted
// whole and nothing longer, or a schema in a line and bytes that choose an answer's tokens, which must parse. The library is left
// out: it is not ours, and its crashes would hide ours.
#include <simdjson.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/json_automaton.h"
#include "text/grammar/json_schema_check.h"
#include "text/grammar/regex_size.h"
#include "text/tokenizer.h"

namespace {

using namespace choral;
using namespace choral::text;

constexpr size_t kPrintable = 95;  // tokens 0 … 94 are the characters from ' '; 95 ends

GrammarCompiler& compiler() {
  static const auto made = [] {
    std::string vocabulary;
    for (size_t i = 0; i < kPrintable; ++i) {
      const char c = static_cast<char>(' ' + i);
      vocabulary += c == '"' || c == '\\' ? std::string("\"\\") + c : std::string("\"") + c;
      vocabulary += "\":" + std::to_string(i) + ",";
    }
    auto tokenizer = Tokenizer::from_json(R"({"model":{"type":"BPE","vocab":{)" + vocabulary + R"("<end>":95},"merges":[]}})");
    if (!tokenizer.ok()) std::abort();
    return *make_grammar_compiler(**tokenizer, {95}, {"no-such-folder", {}});
  }();
  return *made;
}

bool takes(const JsonAutomaton& automaton, std::string_view text) {
  JsonState state;
  for (const char c : text) {
    if (!automaton.step(state, static_cast<uint8_t>(c))) return false;
  }
  return JsonAutomaton::complete(state);
}

int depth_of(std::string_view json) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (quoted && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      depth += (json[i] == '{' || json[i] == '[') - (json[i] == '}' || json[i] == ']');
      deepest = std::max(deepest, depth);
    }
  }
  return deepest;
}

// What the automaton takes is an object for a parser; and what is one for another parser, the automaton takes within its limits,
// up to the last brace: nothing follows a value, no white space either.
void json(std::string_view text) {
  constexpr JsonLimits kWide{.max_depth = 64, .max_white_space = 65535, .max_digits = 65535, .max_exponent_digits = 65535};
  const bool begins_as_object = text.find_first_not_of(" \t\r\n") != text.npos && text[text.find_first_not_of(" \t\r\n")] == '{';
  // That parser takes a zero byte for the end.
  if (begins_as_object && text.size() < 65535 && text.find('\0') == text.npos && nlohmann::json::accept(text) &&
      depth_of(text) <= 64 && !takes(JsonAutomaton(kWide), text.substr(0, text.rfind('}') + 1)))
    std::abort();
  if (!takes(JsonAutomaton(), text)) return;
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  const auto error = parser.parse(text.data(), text.size()).get(element);
  // It has no integers of more than 64 bits.
  if (error == simdjson::NUMBER_ERROR ? !nlohmann::json::accept(text) : error || !element.is_object()) std::abort();
}

void choice(std::string_view text) {
  StructuredOutput wanted;
  wanted.kind = StructuredOutput::Kind::kChoice;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    wanted.choices.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto grammar = compiler().compile(wanted);
  if (!grammar.ok()) return;
  std::vector<uint32_t> words(3);
  for (const std::string& each : wanted.choices) {
    auto matcher = *(*grammar)->matcher();
    bool spelled = true;
    for (const char c : each) {
      const int32_t id = c - ' ';
      if (id < 0 || id >= static_cast<int32_t>(kPrintable)) spelled = false;
      if (!spelled) break;
      matcher->fill_mask(words);
      if (!(words[id / 32] >> (id % 32) & 1) || !matcher->accept(id)) std::abort();
    }
    if (spelled && !matcher->complete()) std::abort();
  }
}

void answer(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const auto grammar = compiler().compile({StructuredOutput::Kind::kJsonSchema, std::string(text.substr(0, end)), {}});
  if (!grammar.ok()) return;
  auto matcher = *(*grammar)->matcher();
  std::vector<uint32_t> words(3);
  std::string written;
  for (const char c : text.substr(std::min(end + 1, text.size()))) {
    matcher->fill_mask(words);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < static_cast<int32_t>(kPrintable); ++id) {
      if (words[id / 32] >> (id % 32) & 1) ids.push_back(id);
    }
    if (ids.empty()) break;  // complete, or on with characters that this vocabulary has not
    const int32_t id = ids[static_cast<uint8_t>(c) % ids.size()];
    if (!matcher->accept(id)) std::abort();
    written += static_cast<char>(' ' + id);
  }
  if (matcher->complete() && !nlohmann::json::accept(written)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const GrammarLimits limits;
  switch (data[0]) {
    case 's': static_cast<void>(check_json_schema(text, limits)); break;
    case 't': static_cast<void>(check_structural_tag(text, limits)); break;
    case 'g': static_cast<void>(check_ebnf(text, limits)); break;
    case 'r': static_cast<void>(check_regex(text, {})); break;
    case 'j': json(text); break;
    case 'c': choice(text); break;
    case 'a': answer(text); break;
    default: break;
  }
  return 0;
}
