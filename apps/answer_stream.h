// One answer on standard output as it is made. At a terminal a word that the edge would break goes to the next line whole; for
// that the last word waits for its end. Elsewhere the text is as it is. Main thread only.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::apps {

class WordWrap {
 public:
  // What can be shown of the text so far, on lines of `columns`. A word that is longer than a line is broken, and so are scripts
  // without blanks, at any of their characters.
  std::string add(std::string_view piece, int columns);
  std::string end();  // the last word

 private:
  void put_word(std::string& out);

  int columns_ = 0;  // of the last piece
  int column_ = 0;
  std::string blanks_, word_;  // held back: a blank at the edge is none
  int word_width_ = 0;
};

class AnswerStream {
 public:
  Status write(std::string_view piece);
  Status end();  // with a line break, unless there is one

 private:
  WordWrap wrap_;
  bool ends_line_ = false;
};

}  // namespace choral::apps
