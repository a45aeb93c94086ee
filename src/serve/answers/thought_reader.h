// Takes what a model thinks out of its answer's text, piece by piece: the rest goes on to who reads that. Thoughts begin the
// answer, behind a mark or where the prompt opened them, and end with theirs, or with the answer. White space around them, and
// behind them, belongs to nobody. What may begin a mark is held back until that is decided; whatever the pieces are, their sum is
// the same. Linear in the text. Not thread-safe: one for each answer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "serve/answers/thought_marks.h"

namespace choral::serve {

class ThoughtReader {
 public:
  // `open`: the prompt left thoughts open.
  ThoughtReader(const ThoughtMarks& marks, bool open) : marks_(&marks), part_(open ? Part::kOpened : Part::kBegin) {}

  // Appends to both. At the end of the answer, `is_all`.
  void push(std::string_view text, bool is_all, std::string& reasoning, std::string& rest);

  // Where the text so far ends.
  enum class Place { kUndecided, kThoughts, kRest };
  Place place() const;
  size_t ended() const { return ended_; }  // thoughts that came to their end so far

 private:
  enum class Part {
    kBegin,   // nothing but white space so far
    kOpened,  // by the prompt; the model may say its mark again
    kThoughts,
    kBehind,  // white space behind thoughts
    kRest,
  };

  bool step(std::string& reasoning, std::string& rest);  // false: more text is needed
  enum class Begun { kYes, kNo, kUndecided };
  Begun take_begin();
  bool begin_step();
  bool opened_step();
  bool thoughts_step(std::string& reasoning);
  bool behind_step();
  bool rest_step(std::string& rest);
  void give_thoughts(size_t end, std::string& reasoning);

  const ThoughtMarks* marks_;
  Part part_;
  std::string held_;
  bool is_all_ = false;
  bool said_ = false;  // some of the present thoughts
  size_t ended_ = 0;
};

}  // namespace choral::serve
