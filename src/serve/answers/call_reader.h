// Takes the calls of functions out of a text, piece by piece as it is generated or all at once. Text that may be the beginning of
// a mark or a call is held back until that is decided; what turns out to be no call is content, as it was. White space right
// before a call goes with it. Whatever the pieces are, their sum is the same. Linear in the text, no regular expressions. Not
// thread-safe: one for each answer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "serve/answers/answer_events.h"
#include "serve/answers/call_head.h"
#include "serve/answers/call_marks.h"
#include "serve/answers/gemma4_call.h"
#include "serve/answers/json_call.h"
#include "serve/answers/parameter_call.h"
#include "serve/answers/parameter_types.h"
#include "serve/answers/python_call.h"

namespace choral::serve {

inline constexpr size_t kMaxHeldCall = 1 << 20;  // bytes of a call whose name is not known yet
inline constexpr size_t kMaxCalls = 128;         // of an answer

// What reading calls needs beside the text.
struct CallReading {
  ToolFormat format = ToolFormat::kJson;
  Announce announce = Announce::kEarly;
  std::function<std::string()> make_id;
  std::shared_ptr<const ParameterTypes> types = nullptr;  // null: nothing is known of them
  // The answer is nothing but calls, as a constraint made it: when it is cut, what is no call yet is nothing.
  bool only_calls = false;
  // The answer is nothing but the arguments of this function, as a constraint made it.
  std::string only_arguments_of = {};
};

class CallReader {
 public:
  explicit CallReader(CallReading reading);

  // Appends to `out`.
  void push(std::string_view text, AnswerEvents& out);
  void finish(AnswerEnd end, AnswerEvents& out);  // once, last
  size_t calls() const { return calls_; }

 private:
  enum class Mode { kContent, kHead, kBody, kTail };
  // What stands behind a call.
  struct Tail {
    bool there = false;
    bool sure = false;   // more text would not change it
    size_t bytes = 0;    // that belong to it
    bool again = false;  // another call may follow
  };

  void run(AnswerEvents& out);
  bool step(AnswerEvents& out);  // false: more text is needed
  bool content_step(AnswerEvents& out);
  bool begins_with_call();
  bool begin_marked(std::string_view mark, AnswerEvents& out);
  bool head_step();
  bool body_step(AnswerEvents& out);
  bool tail_step();
  Tail tail(CallCursor& text) const;

  void begin_call(size_t mark_end, bool marked);
  void begin_body(FoundHead head);
  CallStep feed(char c);
  bool is_known() const;
  std::string name() const;
  void give_up();
  void tell(AnswerEvents& out);
  void tell_arguments(AnswerEvents& out);
  void end_call(bool cut, AnswerEvents& out);
  void drop_read();
  void end_cut(AnswerEvents& out);
  void say(size_t end, AnswerEvents& out);
  size_t before_space() const;

  CallReading reading_;
  const CallMarks* marks_;
  bool only_calls_ = false;

  std::string held_;  // not yet given out; a call's bytes stay while it may still be content
  size_t at_ = 0;     // read so far
  Mode mode_ = Mode::kContent;
  bool at_begin_ = true;  // nothing but white space so far
  bool finishing_ = false;
  bool marked_ = false;  // a mark announced the call
  bool in_array_ = false, in_fence_ = false;
  bool told_ = false;    // the call that is read
  size_t mark_end_ = 0;  // where content goes on when it is none
  size_t given_up_ = 0;  // bytes that were read as calls and then as content
  std::variant<std::monostate, JsonCall, ParameterCall, PythonCall, Gemma4Call> body_;
  std::string id_;             // that the model gave
  std::set<std::string> ids_;  // those of them that were used
  size_t calls_ = 0;
};

}  // namespace choral::serve
