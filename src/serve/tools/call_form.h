// How one call is written in a family's form, around its arguments, and how several stand together: what constraints hold an
// answer to, and what a model is told to write. Thread-safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "serve/answers/call_marks.h"

namespace choral::serve {

struct CallForm {
  std::string before_name, after_name, end;  // before_name NAME after_name {arguments} end
  std::string_view separator;
  std::string open, close;   // around all calls; empty: each stands alone
  std::string_view trigger;  // what free text may not hold but at a call; empty: nothing tells
  // A call's number stands between after_name and this; empty: calls have none.
  std::string_view after_number = {};
  std::string_view style = {};  // in which the library of grammars writes arguments; empty: JSON
};
// With arguments as JSON, which families with a form of their own read too.
CallForm call_form(ToolFormat format);
// What constraints hold an answer to: with arguments as the family writes them, where the library of grammars knows how.
CallForm held_form(ToolFormat format);

// Calls as the model writes them: of each its name and its arguments' JSON.
std::string written_calls(ToolFormat format, std::span<const std::pair<std::string, std::string>> calls);

}  // namespace choral::serve
