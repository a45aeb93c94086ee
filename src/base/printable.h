// Untrusted text in messages: a file or a request must not drive a terminal or forge a log line. Names from files go through
// printable(); Status, the log and whatever prints to a terminal pass their text through the other two, so that a name nobody
// thought of is harmless too.
#pragma once

#include <string>
#include <string_view>

namespace choral {

// A name in ASCII: other bytes become \xNN, quotes are escaped, long names are cut.
std::string printable(std::string_view name, size_t max_bytes = 120);

// Text in any script on one line: control characters, bytes that are no UTF-8 and marks that turn the direction of text become
// \n, \xNN or \u{NNNN}; everything else stays.
std::string terminal_line(std::string_view text);

// The same for a whole message. A line break before two spaces stays, as lists of problems have it: no name can begin a line.
std::string terminal_text(std::string_view text);

// The beginning of a text on one line, in quotes.
std::string quoted(std::string_view text, size_t max_bytes = 200);

}  // namespace choral
