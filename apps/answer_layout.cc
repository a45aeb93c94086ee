#include "answer_layout.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace choral::apps {
namespace {

constexpr size_t kMostColumns = 3;  // of answers side by side
constexpr int kLeastColumn = 36;    // characters of one
constexpr int kLeastText = 40;      // beside a name
constexpr int kLongestName = 24;
constexpr std::string_view kBetween = " │ ";
constexpr int kBetweenWidth = 3;
constexpr int kTab = 4;

bool is_control(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1) return first < 0x20 || first == 0x7F;
  return bytes.size() == 2 && first == 0xC2 && static_cast<unsigned char>(bytes[1]) < 0xA0;  // C1
}

// Line breaks stay, tabs become blanks, other control characters too.
std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [bytes, width] = first_character(text);
    text.remove_prefix(bytes.size());
    if (bytes == "\t") {
      out.append(kTab, ' ');
    } else if (bytes == "\n" || !is_control(bytes)) {
      out += bytes;
    } else if (bytes != "\r") {
      out += ' ';
    }
  }
  return out;
}

void pad(std::string& line, int to) { line.append(std::max(0, to - text_width(line)), ' '); }

void wrap_line(std::string_view text, int width, std::vector<std::string>& lines) {
  std::string line;
  int used = 0;
  size_t last_blank = std::string::npos;  // in `line`: where it can be cut
  while (!text.empty()) {
    const auto [bytes, wide] = first_character(text);
    text.remove_prefix(bytes.size());
    if (width > 0 && used + wide > width && used > 0) {
      if (bytes == " ") {  // the blank at the end of a full line
        lines.push_back(std::move(line));
        line.clear(), used = 0, last_blank = std::string::npos;
        continue;
      }
      std::string rest;
      if (last_blank != std::string::npos && last_blank > 0) {
        rest = line.substr(last_blank + 1);
        line.resize(last_blank);
      }
      lines.push_back(std::move(line));
      line = std::move(rest);
      used = text_width(line);
      last_blank = std::string::npos;
    }
    // Blanks at the beginning are an indentation, no place to cut.
    if (bytes == " " && line.find_first_not_of(' ') != std::string::npos) last_blank = line.size();
    line += bytes;
    used += wide;
  }
  lines.push_back(std::move(line));
}

}  // namespace

int terminal_columns(int descriptor) {
  if (const char* set = std::getenv("COLUMNS"); set != nullptr) {
    const std::string_view text = set;
    int columns = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (error == std::errc() && end == text.data() + text.size() && columns > 0) return columns;
  }
  winsize size{};
  if (isatty(descriptor) != 1 || ioctl(descriptor, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

AnswerLayout::AnswerLayout(const std::vector<std::string>& names, int columns) {
  int longest = 0;
  for (const auto& name : names) {
    answers_.push_back({.name = printable(name)});
    longest = std::max(longest, text_width(answers_.back().name));
  }
  const auto count = static_cast<int>(names.size());
  const int gaps = (count - 1) * kBetweenWidth;
  if (count >= 2 && names.size() <= kMostColumns && columns >= count * kLeastColumn + gaps) {
    form_ = Form::kColumns;
    width_ = (columns - gaps) / count;
    for (auto& answer : answers_) {
      answer.lines = wrap_text(answer.name, width_);
      std::string rule;
      for (int i = 0; i < width_; ++i) rule += "─";
      answer.lines.push_back(std::move(rule));
    }
  } else if (longest <= kLongestName && (columns == 0 || columns >= longest + 2 + kLeastText)) {
    form_ = Form::kBesideNames;
    indent_ = longest + 2;
    width_ = columns > 0 ? columns - indent_ : 0;
  } else {
    form_ = Form::kUnderHeadings;
    width_ = columns;
  }
}

// Blanks and line breaks at the end may be the answer's last, which are left out.
void AnswerLayout::grow(Answer& answer, std::string_view piece) {
  answer.open += printable(piece);
  const size_t end = answer.open.find_last_not_of(" \n") + 1;
  const std::string tail = answer.open.substr(end);
  std::vector<std::string> lines = wrap_text(answer.open.substr(0, end), width_);
  answer.open = std::move(lines.back()) + tail;
  lines.pop_back();
  std::move(lines.begin(), lines.end(), std::back_inserter(answer.lines));
}

std::string AnswerLayout::add(size_t i, std::string_view piece) {
  grow(answers_.at(i), piece);
  return ready();
}

std::string AnswerLayout::end(size_t i, std::string_view piece) {
  Answer& answer = answers_.at(i);
  grow(answer, piece);
  answer.open.resize(answer.open.find_last_not_of(" \n") + 1);
  answer.lines.push_back(std::exchange(answer.open, ""));
  answer.ended = true;
  return ready();
}

std::string AnswerLayout::ready() { return form_ == Form::kColumns ? rows() : next_answers(); }

// A row is complete when every answer has its line or has ended.
std::string AnswerLayout::rows() {
  std::vector<size_t> taken(answers_.size(), 0);
  std::string out;
  for (size_t row = 0;; ++row) {
    const auto has_line = [row](const Answer& answer) { return row < answer.lines.size(); };
    if (std::none_of(answers_.begin(), answers_.end(), has_line)) break;
    if (!std::all_of(answers_.begin(), answers_.end(), [&](const Answer& a) { return has_line(a) || a.ended; })) break;
    std::string line;
    for (size_t i = 0; i < answers_.size(); ++i) {
      const bool has = has_line(answers_[i]);
      std::string cell = has ? answers_[i].lines[row] : "";
      taken[i] += has ? 1 : 0;
      if (i + 1 < answers_.size()) {
        pad(cell, width_);
        cell += kBetween;
      }
      line += cell;
    }
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  for (size_t i = 0; i < answers_.size(); ++i)
    answers_[i].lines.erase(answers_[i].lines.begin(), answers_[i].lines.begin() + static_cast<ptrdiff_t>(taken[i]));
  return out;
}

// One answer after the other, each as far as it is.
std::string AnswerLayout::next_answers() {
  std::string out;
  for (; at_ < answers_.size(); ++at_, has_begun_ = false) {
    Answer& answer = answers_[at_];
    for (auto& line : answer.lines) {
      const bool is_first = !std::exchange(has_begun_, true);
      if (form_ == Form::kBesideNames) {
        std::string head = is_first ? answer.name : "";
        if (!line.empty()) pad(head, indent_);
        out += head;
      } else if (is_first) {
        out += fmt::format("{}── {} ──\n", at_ > 0 ? "\n" : "", answer.name);
      }
      out += line + "\n";
    }
    answer.lines.clear();
    if (!answer.ended) break;
  }
  return out;
}

std::string lay_out(std::span<const NamedText> answers, int columns) {
  std::vector<std::string> names;
  for (const auto& answer : answers) names.push_back(answer.name);
  AnswerLayout layout(names, columns);
  std::string out;
  for (size_t i = 0; i < answers.size(); ++i) out += layout.end(i, answers[i].text);
  return out;
}

Character first_character(std::string_view text) {
  utf8proc_int32_t point = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &point);
  if (length <= 0) return {text.substr(0, 1), 1};
  return {text.substr(0, length), utf8proc_charwidth(point)};
}

int text_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const auto character = first_character(text);
    width += character.width;
    text.remove_prefix(character.bytes.size());
  }
  return width;
}

std::string cut_to_width(std::string_view line, int width) {
  std::string out;
  for (int used = 0; !line.empty();) {
    const auto [bytes, wide] = first_character(line);
    if (width > 0 && (used += wide) > width) break;
    out += bytes;
    line.remove_prefix(bytes.size());
  }
  return out;
}

std::vector<std::string> wrap_text(std::string_view text, int width) {
  std::string clean = printable(text);
  while (!clean.empty() && (clean.back() == '\n' || clean.back() == ' ')) clean.pop_back();
  std::vector<std::string> lines;
  std::string_view rest = clean;
  for (;;) {
    const size_t end = rest.find('\n');
    wrap_line(rest.substr(0, end), width, lines);
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace choral::apps
