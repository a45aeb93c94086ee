// What stands before a call's arguments in a form's way of writing. Pure; any thread.
#pragma once

#include <string>

#include "serve/answers/call_cursor.h"
#include "serve/answers/call_marks.h"

namespace choral::serve {

// How a call's arguments are written.
enum class CallBody {
  kObject,      // {"name": …, "arguments": …}, from its brace on
  kArguments,   // the arguments' object, from its brace on
  kParameters,  // ParameterMarks
  kGemma4,      // {key:value, …}, from its brace on
  kPython,      // name(key=value, …), from its name on
};

struct FoundHead {
  bool there = false;  // false, and the cursor ran out: more text may still make it so
  CallBody body = CallBody::kObject;
  std::string name = {}, id = {};  // where they stand before the arguments
  bool array = false;              // the call is the first of an array
  bool fence = false;              // a ``` stood before it
};
// `marked`: a mark stood before it. `in_array`: another call of an array comes.
FoundHead find_call_head(const CallMarks& marks, CallCursor& text, bool marked, bool in_array);

}  // namespace choral::serve
