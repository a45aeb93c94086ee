#include "text_table.h"

#include <algorithm>

#include "answer_layout.h"

namespace choral::apps {

std::string TextTable::part(size_t begin, size_t end) const {
  std::string out;
  const auto line = [&](auto cell) {
    std::string text = cell(0);
    text.append(static_cast<size_t>(std::max(0, columns_[0].width - text_width(text))), ' ');
    for (size_t i = begin; i < end; ++i) {
      const std::string one = cell(i);
      text.append(static_cast<size_t>(std::max(0, columns_[i].width - text_width(one))), ' ');
      text += one;
    }
    text.resize(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](size_t i) { return columns_[i].heading; });
  for (const auto& row : rows_) line([&](size_t i) { return row.at(i); });
  return out;
}

std::vector<std::string> TextTable::headings() const {
  std::vector<std::string> out;
  for (const auto& column : columns_) out.push_back(column.heading);
  return out;
}

std::string TextTable::text(int columns) const {
  std::string out;
  for (size_t begin = 1; begin < columns_.size();) {
    size_t end = begin;
    int width = columns_[0].width;
    while (end < columns_.size() && (end == begin || columns == 0 || width + columns_[end].width <= columns)) {
      width += columns_[end].width;
      ++end;
    }
    if (begin > 1) out += "\n";
    out += part(begin, end);
    begin = end;
  }
  return out;
}

}  // namespace choral::apps
