#include "answer_layout.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace choral::apps {
namespace {

constexpr size_t kMostColumns = 3;  // of answers side by side
constexpr int kLeastColumn = 36;    // characters of one
constexpr int kLeastText = 40;      // beside a name
constexpr int kLongestName = 24;
constexpr std::string_view kBetween = " │ ";
constexpr int kBetweenWidth = 3;
constexpr int kTab = 4;

struct Character {
  std::string_view bytes;
  int width = 1;
};

// The character at the beginning of `text`. A byte that is no UTF-8 counts as one column.
Character first_character(std::string_view text) {
  utf8proc_int32_t point = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &point);
  if (length <= 0) return {text.substr(0, 1), 1};
  return {text.substr(0, length), utf8proc_charwidth(point)};
}

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

std::string in_columns(std::span<const NamedText> answers, int columns) {
  const int gaps = kBetweenWidth * static_cast<int>(answers.size() - 1);
  const int width = (columns - gaps) / static_cast<int>(answers.size());
  std::vector<std::vector<std::string>> cells;
  size_t height = 0;
  for (const auto& answer : answers) {
    auto& cell = cells.emplace_back();
    for (auto& line : wrap_text(printable(answer.name), width)) cell.push_back(std::move(line));
    std::string rule;
    for (int i = 0; i < width; ++i) rule += "─";
    cell.push_back(std::move(rule));
    for (auto& line : wrap_text(answer.text, width)) cell.push_back(std::move(line));
    height = std::max(height, cell.size());
  }
  std::string out;
  for (size_t row = 0; row < height; ++row) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      std::string cell = row < cells[i].size() ? cells[i][row] : "";
      if (i + 1 < cells.size()) {
        pad(cell, width);
        cell += kBetween;
      }
      line += cell;
    }
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string beside_names(std::span<const NamedText> answers, int columns, int name_width) {
  const int indent = name_width + 2;
  std::string out;
  for (const auto& answer : answers) {
    std::string head = printable(answer.name);
    for (const auto& line : wrap_text(answer.text, columns > 0 ? columns - indent : 0)) {
      if (!line.empty()) pad(head, indent);
      out += head + line + "\n";
      head.clear();
    }
  }
  return out;
}

std::string under_headings(std::span<const NamedText> answers, int columns) {
  std::string out;
  for (const auto& answer : answers) {
    if (!out.empty()) out += "\n";
    out += fmt::format("── {} ──\n", printable(answer.name));
    for (const auto& line : wrap_text(answer.text, columns)) out += line + "\n";
  }
  return out;
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

std::string lay_out(std::span<const NamedText> answers, int columns) {
  int longest = 0;
  for (const auto& answer : answers) longest = std::max(longest, text_width(printable(answer.name)));
  const auto count = static_cast<int>(answers.size());
  if (count >= 2 && answers.size() <= kMostColumns && columns >= count * kLeastColumn + (count - 1) * kBetweenWidth) {
    return in_columns(answers, columns);
  }
  if (longest <= kLongestName && (columns == 0 || columns >= longest + 2 + kLeastText)) {
    return beside_names(answers, columns, longest);
  }
  return under_headings(answers, columns);
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
