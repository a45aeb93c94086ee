// A table of figures, whose columns have widths of their own. Where it is wider than the terminal its columns come in several
// tables under each other, with the first column in each. Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace choral::apps {

class TextTable {
 public:
  // The first column, to the left; the others stand to the right.
  TextTable(std::string heading, int width) : columns_{{std::move(heading), width}} {}

  void add_column(std::string heading, int width) { columns_.push_back({std::move(heading), width}); }
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }  // one for each column

  std::string text(int columns) const;  // of the terminal; 0: there is none
  std::vector<std::string> headings() const;
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  struct Column {
    std::string heading;
    int width;
  };
  std::string part(size_t begin, size_t end) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace choral::apps
