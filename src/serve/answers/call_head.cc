#include "serve/answers/call_head.h"

#include <algorithm>
#include <array>

#include "serve/answers/function_name.h"

namespace choral::serve {
namespace {

bool is_name_character(char c) { return is_function_name({&c, 1}, true); }

class Head {
 public:
  Head(const CallMarks& marks, CallCursor& text, bool marked, bool in_array)
      : marks_(marks), text_(text), marked_(marked), in_array_(in_array) {}

  FoundHead find() {
    found_.there = in_array_ ? element() : whole();
    return std::move(found_);
  }

 private:
  bool whole() {
    switch (marks_.head) {
      case HeadForm::kObject: return object();
      case HeadForm::kObjects: return objects();
      case HeadForm::kMistral: return objects() || (marked_ && !found_.array && mistral());
      case HeadForm::kSection: return section();
      case HeadForm::kFunction: return function();
      case HeadForm::kNameLine: return objects() || (!found_.array && name_line());
      case HeadForm::kPython: return python(!marked_);
      case HeadForm::kPythonLines: return python(!marked_);
      case HeadForm::kWord: return objects() || (!found_.array && word());
      case HeadForm::kFenced: return fence() && objects();
      case HeadForm::kFencedPython: return fence() && python(!found_.fence && !marked_);
      case HeadForm::kNone: return false;
    }
    return false;
  }

  // Another call of an array, behind its comma.
  bool element() {
    text_.space();
    if (text_.peek("{")) return true;
    const bool may_be_python =
        marks_.head == HeadForm::kPython || marks_.head == HeadForm::kPythonLines || marks_.head == HeadForm::kFencedPython;
    return may_be_python && python_name();
  }

  bool object() {
    text_.space();
    return text_.peek("{");
  }

  // An object, or the first of an array's.
  bool objects() {
    if (object()) return true;
    if (!text_.take("[")) return false;
    found_.array = true;
    return object();
  }

  // `in_brackets`: nothing else would tell it from text.
  bool python(bool in_brackets) {
    if (objects()) return true;
    return (found_.array || !in_brackets) && python_name();
  }
  bool python_name() {
    if (!text_.peek_that(begins_function_name)) return false;
    found_.body = CallBody::kPython;
    return true;
  }

  // "name{", "name[ARGS]{", "name[CALL_ID]abc[ARGS]{".
  bool mistral() {
    found_.body = CallBody::kArguments;
    found_.name = text_.take_while(is_name_character);
    if (!is_function_name(found_.name, true)) return false;
    if (text_.take(kMistralId)) text_.take_while([](char c) { return is_function_name({&c, 1}, false); });
    static_cast<void>(text_.take(kMistralArguments));
    return object();
  }

  // "<call begin>function<separator>name\n```json\n{" of DeepSeek V3, "<call begin>name<separator>{" of V3.1, and of Kimi with
  // "functions.name:0" for the name.
  bool section() {
    found_.body = CallBody::kArguments;
    text_.space();
    if (!text_.take(marks_.call_begin)) return false;
    const auto first = text_.take_until(marks_.separator);
    if (!first) return false;
    found_.name = trimmed(*first);
    if (!object()) {
      const auto line = text_.take_until("\n");
      if (!line) return false;
      found_.name = trimmed(*line);
      text_.space();
      if (text_.take("```")) text_.take_while(is_name_character);
      if (!object()) return false;
    }
    if (marks_.format == ToolFormat::kKimiK2) take_kimis_id();
    return is_function_name(found_.name, true);
  }
  void take_kimis_id() {
    constexpr std::string_view kFunctions = "functions.";
    const size_t colon = found_.name.rfind(':');
    if (colon != std::string::npos) {
      if (is_function_name(found_.name.substr(0, colon), true)) found_.id = found_.name;
      found_.name.resize(colon);
    }
    if (found_.name.starts_with(kFunctions)) found_.name.erase(0, kFunctions.size());
  }

  // "<function=name>", "<invoke name="name">"
  bool function() {
    if (marked_ && objects()) return true;
    if (found_.array || !text_.take(marks_.call_begin)) return false;
    found_.body = CallBody::kParameters;
    const auto name = text_.take_until(">");
    if (!name) return false;
    found_.name = trimmed(*name);
    if (found_.name.size() > 2 && found_.name.front() == '"' && found_.name.back() == '"')
      found_.name = found_.name.substr(1, found_.name.size() - 2);
    return is_function_name(found_.name, true);
  }

  // "name", and what is no name behind it.
  bool name_line() {
    found_.body = CallBody::kParameters;
    found_.name = text_.take_while(is_name_character);
    if (text_.ended()) return false;
    if (!is_function_name(found_.name, true)) return false;
    text_.space();
    const ParameterMarks& parameters = parameter_marks(marks_.format);
    return text_.peek(parameters.key_begin) || text_.peek(parameters.end);
  }

  // "call:name{"
  bool word() {
    found_.body = CallBody::kGemma4;
    if (!text_.take(marks_.call_begin)) return false;
    text_.space();
    found_.name = text_.take_while(is_name_character);
    return object() && is_function_name(found_.name, true);
  }

  // None, or "```json\n", and what small models write for it.
  bool fence() {
    constexpr std::array<std::string_view, 6> kWords = {"", "json", "tool_call", "tool_calls", "tool_code", "python"};
    text_.space();
    if (marked_ || !text_.peek("`")) return true;
    if (!text_.take("```")) return false;
    const auto word = text_.take_until("\n");
    found_.fence = word && std::find(kWords.begin(), kWords.end(), trimmed(*word)) != kWords.end();
    return found_.fence;
  }

  const CallMarks& marks_;
  CallCursor& text_;
  const bool marked_, in_array_;
  FoundHead found_;
};

}  // namespace

FoundHead find_call_head(const CallMarks& marks, CallCursor& text, bool marked, bool in_array) {
  return Head(marks, text, marked, in_array).find();
}

}  // namespace choral::serve
