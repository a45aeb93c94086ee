// Takes the tool calls out of an answer's text, piece by piece as it is generated or all at once. Text that may be the beginning
// of a marker or a call is held back until that is decided; what turns out to be no call is content, as it was. White space right
// before a call goes with it. Whatever the pieces are, their sum is the same. Linear in the text, no regular expressions.
// Not thread-safe: one for each answer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tools/json_call_reader.h"
#include "serve/tools/tool_format.h"

namespace choral::serve {

// As OpenAI streams them: id and name stand in a call's first delta, arguments come in pieces.
struct ToolCallDelta {
  size_t index = 0;  // of the call in the answer
  std::string id, name, arguments;
  bool cut = false;  // the answer ended within the call, for which there was no room
};

struct AnswerDelta {
  std::string content;
  std::vector<ToolCallDelta> calls;  // at most one for each call
};

// A call in whole; the sum of its deltas.
struct ToolCall {
  std::string id, name, arguments;  // arguments: JSON text
};
struct ParsedAnswer {
  std::string content;
  std::vector<ToolCall> calls;
};

class CallCursor;  // call_head.h

class ToolCallParser {
 public:
  enum class Announce {
    kEarly,  // a call as soon as its name is sure; one that breaks off later stays a call with the arguments it has
    kWhole,  // a call when it is whole; one that breaks off is content
  };
  // Why there is no more text.
  enum class End {
    kOver,
    kCut,  // there was no room for the rest: a call whose name is sure is one with the arguments it has, as OpenAI gives it
  };
  ToolCallParser(ToolFormat format, Announce announce, std::function<std::string()> make_id);
  // The answer is nothing but calls, as a constraint made it: when it is cut, what is no call yet is nothing.
  void expect_only_calls() { only_calls_ = true; }
  // The answer is nothing but the arguments of this function, as a constraint made it.
  static ToolCallParser of_arguments(std::string function, Announce announce, std::function<std::string()> make_id);

  // Appends to `out`.
  void push(std::string_view text, AnswerDelta& out);
  void finish(End end, AnswerDelta& out);  // once, last
  size_t calls() const { return calls_; }

 private:
  enum class Mode { kContent, kHead, kJson, kTail };
  // What stands before the JSON of a call, or behind it.
  struct Found {
    bool there = false;
    bool sure = false;      // more text would not change it
    size_t bytes = 0;       // that belong to it
    std::string name = {};  // told before the JSON
    bool array = false;     // the call is the first of an array
    bool fence = false;     // a ``` stood before it
    bool again = false;     // another call may follow
  };

  void run(AnswerDelta& out);
  bool step(AnswerDelta& out);  // false: more text is needed
  bool content_step(AnswerDelta& out);
  bool begins_with_call();
  bool head_step();
  bool json_step(AnswerDelta& out);
  bool tail_step();

  Found head(CallCursor& text) const;
  Found tail(CallCursor& text) const;

  void begin_call(size_t marker_end, bool marked);
  void give_up();
  void announce(AnswerDelta& out);
  void give_arguments(AnswerDelta& out);
  void drop_read();
  void end_cut(AnswerDelta& out);
  void emit_content(size_t end, AnswerDelta& out);
  size_t before_space() const;

  ToolFormat format_;
  Announce announce_;
  std::function<std::string()> make_id_;
  bool only_arguments_ = false, only_calls_ = false;

  std::string held_;  // not yet given out; a call's bytes stay while it may still be content
  size_t at_ = 0;     // read so far
  Mode mode_ = Mode::kContent;
  bool at_begin_ = true;  // nothing but white space so far
  bool finishing_ = false;
  bool marked_ = false;  // a marker announced the call
  bool in_array_ = false, in_fence_ = false;
  bool announced_ = false;  // the call that is read was given out
  size_t marker_end_ = 0;   // where content goes on when it is none
  std::optional<JsonCallReader> reader_;
  size_t calls_ = 0;
};

ParsedAnswer parse_tool_calls(ToolCallParser parser, std::string_view answer, ToolCallParser::End end);

}  // namespace choral::serve
