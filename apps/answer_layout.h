// Answers beside each other: in columns when there are few and the terminal is wide, else name by name with the text indented,
// else under headings. They may still grow: a line is given out when nothing that comes can change it, and in the end it is the
// same text. Widths are a terminal's: an emoji or a Chinese character takes two columns. Main thread only.
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

class AnswerLayout {
 public:
  // `columns`: of the terminal; 0: there is none, and lines are not cut.
  AnswerLayout(const std::vector<std::string>& names, int columns);

  // Answer `i` goes on with `piece`. Gives the lines that can be shown now; may be empty. Control characters come out as blanks,
  // so that no answer moves the cursor.
  std::string add(size_t i, std::string_view piece);
  // … and ends with it. Each answer once; when all have ended all is given out.
  std::string end(size_t i, std::string_view piece);

 private:
  enum class Form { kColumns, kBesideNames, kUnderHeadings };
  struct Answer {
    std::string name;
    std::vector<std::string> lines = {};  // that stay as they are, from the first that was not given out
    std::string open = {};                // what the next ones are made of
    bool ended = false;
  };
  void grow(Answer& answer, std::string_view piece);
  std::string ready();
  std::string rows();
  std::string next_answers();

  Form form_;
  int width_ = 0;   // of an answer's lines; 0: any
  int indent_ = 0;  // of kBesideNames
  std::vector<Answer> answers_;
  size_t at_ = 0;           // the answer that is given out, unless in columns
  bool has_begun_ = false;  // its name was
};

// Of the terminal at a descriptor, standard output (COLUMNS, where it is set, says otherwise); 0 when it is none: lines are not
// cut.
int terminal_columns(int descriptor = 1);
// Of answers that are complete; ends in a line break.
std::string lay_out(std::span<const NamedText> answers, int columns);

// The character that a text begins with. A byte that is no UTF-8 counts as one column.
struct Character {
  std::string_view bytes;
  int width = 1;
};
Character first_character(std::string_view text);
int text_width(std::string_view text);
// Of one line, what `width` columns have room for; 0: all.
std::string cut_to_width(std::string_view line, int width);
// Lines of at most `width` (0: any), cut between words where that can be; the text's own line breaks stay.
std::vector<std::string> wrap_text(std::string_view text, int width);

}  // namespace choral::apps
