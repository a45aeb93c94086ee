// What an answer's text turns out to be, piece by piece: thoughts, content, and calls of functions. Plain records.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace choral::serve {

struct AnswerEvent {
  enum class Kind { kReasoning, kContent, kCallBegin, kArguments, kCallEnd };
  Kind kind = Kind::kContent;
  std::string text = {};           // kReasoning, kContent; kArguments: a piece of the arguments' JSON
  size_t call = 0;                 // of the last three: which call of the answer
  std::string id = {}, name = {};  // kCallBegin
  bool cut = false;                // kCallEnd: the answer ended within the call, for which there was no room

  bool operator==(const AnswerEvent&) const = default;
};

// In the order of the text. Neighbours of one kind are one event; none has an empty text.
class AnswerEvents {
 public:
  void say(AnswerEvent::Kind kind, std::string_view text, size_t call = 0) {
    if (text.empty()) return;
    if (!all_.empty() && all_.back().kind == kind && all_.back().call == call) {
      all_.back().text += text;
    } else {
      all_.push_back({.kind = kind, .text = std::string(text), .call = call});
    }
  }
  void begin_call(size_t call, std::string id, std::string name) {
    all_.push_back({.kind = AnswerEvent::Kind::kCallBegin, .call = call, .id = std::move(id), .name = std::move(name)});
  }
  void end_call(size_t call, bool cut) { all_.push_back({.kind = AnswerEvent::Kind::kCallEnd, .call = call, .cut = cut}); }

  bool empty() const { return all_.empty(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::vector<AnswerEvent> all_;
};

// A call in whole.
struct ToolCall {
  std::string id, name, arguments;  // arguments: JSON text
  bool cut = false;
};

// The sum of an answer's events, or of those from the end of a call on.
struct ReadAnswer {
  std::string reasoning, content;
  std::vector<ToolCall> calls;

  void add(const AnswerEvents& events) {
    for (const AnswerEvent& event : events) {
      switch (event.kind) {
        case AnswerEvent::Kind::kReasoning: reasoning += event.text; break;
        case AnswerEvent::Kind::kContent: content += event.text; break;
        case AnswerEvent::Kind::kCallBegin: calls.push_back({event.id, event.name, {}}); break;
        case AnswerEvent::Kind::kArguments: calls.back().arguments += event.text; break;
        case AnswerEvent::Kind::kCallEnd: calls.back().cut = event.cut; break;
      }
    }
  }
};

// When a call is told.
enum class Announce {
  kEarly,  // as soon as its name is sure; one that breaks off later stays a call with the arguments it has
  kWhole,  // when it is whole; one that breaks off is content
};

// Why there is no more text.
enum class AnswerEnd {
  kOver,
  kCut,  // there was no room for the rest: a call whose name is sure is one with the arguments it has, as OpenAI gives it
};

}  // namespace choral::serve
