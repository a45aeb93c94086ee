// The filters, tests, methods and global functions of the language, in tables by name: each entry says what parameters it
// takes, and the call binds them. Methods that would change their value are absent by design. What Jinja or Python have
// beyond the tables is known by name and refused.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

struct Call {
  Interpreter& interp;
  const Value& self;  // the value filtered or tested, the method's, none of a function
  Arguments& args;
  std::array<const Value*, 4> bound{};  // the arguments by Builtin::parameters; null where none was given

  bool given(size_t i) const { return bound[i] != nullptr && !bound[i]->is_none(); }
  // An argument of one type, or the default when it is not given; an error names the type that came.
  Result<int64_t> integer(size_t i, int64_t otherwise) const;
  Result<std::string_view> text(size_t i, std::string_view otherwise) const;  // not given or None: otherwise
  bool flag(size_t i, bool otherwise) const;
};

struct Builtin {
  std::string_view name;  // or names, separated by spaces
  Result<Value> (*body)(Call& call);
  // Names in order, separated by spaces; one that begins with '/' is not given by name. "*": any, the body reads `args`.
  std::string_view parameters = "";
  size_t required = 0;
  bool linear = true;  // pays for reading value and arguments (Interpreter::pay); false: looks at less, and pays itself
};

std::span<const Builtin> filters();
std::span<const Builtin> tests();
std::span<const Builtin> globals();
std::span<const Builtin> methods(Kind kind);
std::string_view refused_methods(const Value& value);  // attributes of Python's type that are not here, separated by spaces

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);
// "No filter named 'x'…", or unsupported for a name that Jinja knows. `kind`: filter or test.
Status no_builtin(std::string_view kind, std::string_view name, std::string_view found = "");
// Pays, binds the arguments and runs.
Result<Value> invoke(Interpreter& interp, const Builtin& builtin, const Value& self, Arguments& args);
bool has_word(std::string_view words, std::string_view word);  // is it one of these, separated by spaces?

// Parts of the tables above.
std::span<const Builtin> text_methods();
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();

}  // namespace choral::text::jinja
