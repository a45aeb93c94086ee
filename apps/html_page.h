// A report as one HTML file: no script, no other file, no network, both themes, and well-formed XML too. Every text that is given
// here is escaped. Main thread only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "output_file.h"
#include "text_table.h"

namespace choral::apps {

struct HtmlCell {
  enum class Look { kPlain, kBar, kHeat };
  std::string text;
  Look look = Look::kPlain;
  double share = 0;       // of the longest bar, or of the strongest colour: 0 to 1
  std::string told = {};  // while the pointer is over it
};

// The first cell of a row names it.
struct HtmlTable {
  std::string caption;
  std::vector<std::string> headings;
  std::vector<std::vector<HtmlCell>> rows;
};
HtmlTable html_table(std::string caption, const TextTable& table);

// Bars beside each other, from the left to the right.
struct HtmlChart {
  struct Bar {
    double value = 0;                   // not negative
    std::optional<double> beside = {};  // a line over the bar
    std::string told = {};
  };
  std::string caption;
  std::vector<Bar> bars;
};

struct HtmlAnswer {
  std::string name;
  std::string text;
  std::optional<size_t> parts_at = {};  // the byte from which on the text is marked
  std::string facts = {};
};

class HtmlPage {
 public:
  HtmlPage(std::string_view title, std::string_view lead);

  void add_heading(std::string_view text);
  void add_text(std::string_view text);                                            // a paragraph; line breaks stay
  void add_folded(std::string_view title, const std::vector<std::string>& lines);  // nothing where there are no lines
  void add_table(const HtmlTable& table);
  void add_tables_beside(const std::vector<HtmlTable>& tables);  // as far as there is room
  void add_chart(const HtmlChart& chart);
  void add_answers(const std::vector<HtmlAnswer>& answers);  // beside each other

  std::string text() const;

 private:
  std::string title_;
  std::string body_;
};

// For texts and for attributes. What no page can hold (control characters, bytes that are no UTF-8) becomes U+FFFD.
std::string html_escaped(std::string_view text);

// At the work's end; `file` may be null.
Status write_html_file(OutputFile* file, const HtmlPage& page);

}  // namespace choral::apps
