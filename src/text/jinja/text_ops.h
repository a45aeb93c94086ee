// Operations on text that both methods and filters offer: splitting, replacing, padding. Sizes are checked before text
// is made. Pieces are views into the text given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/value.h"

namespace choral::text::jinja {

class Interpreter;

// At most `limit` cuts; any number when it is negative. No more pieces than max_elements are ever made.
using TextPieces = std::vector<std::string_view>;
Result<TextPieces> split(Interpreter& interp, std::string_view text, std::string_view separator, int64_t limit, bool from_right);
Result<TextPieces> split_spaces(Interpreter& interp, std::string_view text, int64_t limit, bool from_right);
Result<TextPieces> split_lines(Interpreter& interp, std::string_view text, bool keep_ends);
Result<std::string> replace(Interpreter& interp, std::string_view text, std::string_view from, std::string_view to,
                            int64_t count);

enum class Align { kLeft, kRight, kCenter };  // where the text stands
Result<std::string> pad(Interpreter& interp, const Text& text, int64_t width, std::string_view fill, Align align);

bool is_upper_text(std::string_view text);  // has a cased character and none that is not upper case
bool is_lower_text(std::string_view text);

}  // namespace choral::text::jinja
