#include "answer_stream.h"

#include <unistd.h>

#include <utility>

#include "answer_layout.h"
#include "output_file.h"

namespace choral::apps {
namespace {

constexpr size_t kBlanksOfTab = 4;
constexpr int kWide = 2;  // columns of a character of a script without blanks

}  // namespace

void WordWrap::put_word(std::string& out) {
  const auto blanks = static_cast<int>(blanks_.size());
  if (column_ > 0 && column_ + blanks + word_width_ > columns_) {
    out += '\n';
    column_ = 0;
    blanks_.clear();
  }
  column_ += static_cast<int>(blanks_.size()) + word_width_;
  out += std::exchange(blanks_, "");
  out += std::exchange(word_, "");
  word_width_ = 0;
}

std::string WordWrap::add(std::string_view piece, int columns) {
  columns_ = columns;
  std::string out;
  while (!piece.empty()) {
    const auto [bytes, width] = first_character(piece);
    piece.remove_prefix(bytes.size());
    if (bytes == "\n") {
      put_word(out);
      out += '\n';
      column_ = 0;
    } else if (bytes == " " || bytes == "\t") {
      if (!word_.empty()) put_word(out);
      blanks_.append(bytes == " " ? 1 : kBlanksOfTab, ' ');
    } else {
      if ((width == kWide && !word_.empty()) || word_width_ + width > columns) put_word(out);
      word_ += bytes;
      word_width_ += width;
      if (width == kWide) put_word(out);
    }
  }
  return out;
}

std::string WordWrap::end() {
  std::string out;
  if (!word_.empty()) put_word(out);
  return out + std::exchange(blanks_, "");
}

Status AnswerStream::write(std::string_view piece) {
  if (piece.empty()) return {};
  ends_line_ = piece.back() == '\n';
  const int columns = isatty(STDOUT_FILENO) == 1 ? terminal_columns() : 0;
  const std::string shown = columns > 0 ? wrap_.add(piece, columns) : std::string(piece);
  return shown.empty() ? Status() : print_out(shown);
}

Status AnswerStream::end() {
  const std::string rest = wrap_.end() + (ends_line_ ? "" : "\n");
  return rest.empty() ? Status() : print_out(rest);
}

}  // namespace choral::apps
