// What a terminal adds to the program's own words: lines cut between words at its edge, and colour for how something stands.
// Where there is no terminal, or NO_COLOR is set, text is as it was. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "tools/doctor_report.h"

namespace choral::apps {

// "✓", "!", "✗" for standard output, green, yellow and red there.
std::string mark_of(tools::Verdict verdict);

// Lines of at most `columns` (0: any), cut between words; what a line goes on with stands `indent` further in than it began.
std::string wrap_hanging(std::string_view text, int columns, int indent = 2);

// A message on standard error, with a line break behind it. Control characters come out as in terminal_text().
void say_wrapped(std::string_view text, int indent = 2);

}  // namespace choral::apps
