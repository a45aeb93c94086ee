// Answers beside each other: in columns when there are few and the terminal is wide, else name by name with the text indented,
// else under headings. Widths are a terminal's: an emoji or a Chinese character takes two columns.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace choral::apps {

struct NamedText {
  std::string name;
  std::string text;
};

// Of the terminal at a descriptor, standard output (COLUMNS, where it is set, says otherwise); 0 when it is none: lines are not
// cut.
int terminal_columns(int descriptor = 1);
// Ends in a line break. Control characters come out as blanks, so that no answer moves the cursor.
std::string lay_out(std::span<const NamedText> answers, int columns);

int text_width(std::string_view text);
// Of one line, what `width` columns have room for; 0: all.
std::string cut_to_width(std::string_view line, int width);
// Lines of at most `width` (0: any), cut between words where that can be; the text's own line breaks stay.
std::vector<std::string> wrap_text(std::string_view text, int width);

}  // namespace choral::apps
