#include "html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "choral/llm.h"

namespace choral::apps {
namespace {

constexpr std::string_view kPageStyle = R"(
:root { color-scheme: light dark; --page: #ffffff; --line: #d8dbe0; --head: #f4f5f7; --text: #1c1f24; --dim: #5b6472; --bar: #cfe0f7;
  --heat: 194, 37, 92; --mark: #c2255c; --series: #3b78c4; }
@media (prefers-color-scheme: dark) { :root { --page: #16191d; --line: #3a4048; --head: #23272e; --text: #e4e7eb; --dim: #a3adbb;
  --bar: #27456b; --heat: 255, 107, 157; --mark: #ff6b9d; --series: #6ea8ef; } }
body { margin: 2em auto; max-width: 80em; padding: 0 1em; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5em; overflow-wrap: anywhere; }
h2 { font-size: 1.15em; margin-top: 2em; overflow-wrap: anywhere; }
p, li { overflow-wrap: anywhere; }
p { white-space: pre-wrap; }
footer, .facts { color: var(--dim); font-size: 12px; }
.wide { overflow-x: auto; margin: 1em 0; }
.beside { display: flex; flex-wrap: wrap; gap: 0 2em; }
table { border-collapse: collapse; }
caption { text-align: left; color: var(--dim); padding-bottom: .4em; }
th, td { border: 1px solid var(--line); padding: .25em .6em; text-align: right; font-variant-numeric: tabular-nums; }
th { background: var(--head); font-weight: 600; }
th:first-child { text-align: left; }
tbody th { white-space: nowrap; }
.bar { background: linear-gradient(to right, var(--bar) var(--share), transparent var(--share)); min-width: 8em; }
.heat { background: rgba(var(--heat), calc(var(--share) * .6)); }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22em, 100%), 1fr)); gap: 1em; margin: 1em 0; }
.answers section { border: 1px solid var(--line); border-radius: 4px; padding: .6em .8em; min-width: 0; }
.answers h3 { margin: 0 0 .4em; font-size: 1em; overflow-wrap: anywhere; }
.answer { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
mark { background: none; color: inherit; border-left: 3px solid var(--mark); padding-left: .2em; }
figure { margin: 1em 0; }
figcaption { color: var(--dim); }
svg { display: block; width: 100%; height: 10em; }
svg rect { fill: var(--series); }
svg line { stroke: var(--mark); stroke-width: 2; vector-effect: non-scaling-stroke; }
)";

bool page_can_hold(uint32_t code) {
  if (code < 0x20) return code == '\n' || code == '\t';
  return (code < 0x7F || code > 0x9F) && code != 0xFFFE && code != 0xFFFF;
}

double bounded_share(double share) { return std::isnan(share) ? 0 : std::clamp(share, 0.0, 1.0); }

std::string told_attribute(const std::string& told) {
  return told.empty() ? "" : fmt::format(" title=\"{}\"", html_escaped(told));
}

std::string cell_html(const HtmlCell& cell) {
  std::string look;
  const double percent = 100 * bounded_share(cell.share);
  if (cell.look == HtmlCell::Look::kBar) look = fmt::format(" class=\"bar\" style=\"--share: {:.1f}%\"", percent);
  if (cell.look == HtmlCell::Look::kHeat) look = fmt::format(" class=\"heat\" style=\"--share: {:.3f}\"", percent / 100);
  return fmt::format("<td{}{}>{}</td>", look, told_attribute(cell.told), html_escaped(cell.text));
}

std::string table_html(const HtmlTable& table) {
  std::string out = "<div class=\"wide\"><table>";
  if (!table.caption.empty()) out += fmt::format("<caption>{}</caption>", html_escaped(table.caption));
  out += "<thead><tr>";
  for (const auto& heading : table.headings) out += fmt::format("<th scope=\"col\">{}</th>", html_escaped(heading));
  out += "</tr></thead>\n<tbody>";
  for (const auto& row : table.rows) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", html_escaped(row.front().text));
    for (size_t i = 1; i < row.size(); ++i) out += cell_html(row[i]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string answer_html(const HtmlAnswer& answer) {
  const std::string_view text = answer.text;
  const size_t at = std::min(answer.parts_at.value_or(text.size()), text.size());
  std::string out = fmt::format("<section><h3>{}</h3><div class=\"answer\" dir=\"auto\">{}", html_escaped(answer.name),
                                html_escaped(text.substr(0, at)));
  if (answer.parts_at) out += fmt::format("<mark>{}</mark>", html_escaped(text.substr(at)));
  return out + fmt::format("</div><p class=\"facts\">{}</p></section>\n", html_escaped(answer.facts));
}

constexpr double kChartHeight = 100;

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = check_utf8(text);
    const char* p = text.data();
    if (step.length == 0 || !page_can_hold(next_code_point(p))) {
      out += "\uFFFD";
    } else if (text[0] == '&') {
      out += "&amp;";
    } else if (text[0] == '<') {
      out += "&lt;";
    } else if (text[0] == '>') {
      out += "&gt;";
    } else if (text[0] == '"') {
      out += "&quot;";
    } else if (text[0] == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, step.length);
    }
    text.remove_prefix(std::max(step.length, step.broken));
  }
  return out;
}

HtmlTable html_table(std::string caption, const TextTable& table) {
  HtmlTable out{.caption = std::move(caption), .headings = table.headings(), .rows = {}};
  for (const auto& row : table.rows()) {
    auto& cells = out.rows.emplace_back();
    for (const auto& cell : row) cells.push_back({.text = cell});
  }
  return out;
}

HtmlPage::HtmlPage(std::string_view title, std::string_view lead) : title_(html_escaped(title)) {
  body_ = fmt::format("<h1>{}</h1>\n", title_);
  add_text(lead);
}

void HtmlPage::add_heading(std::string_view text) { body_ += fmt::format("<h2>{}</h2>\n", html_escaped(text)); }

void HtmlPage::add_text(std::string_view text) { body_ += fmt::format("<p dir=\"auto\">{}</p>\n", html_escaped(text)); }

void HtmlPage::add_folded(std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  body_ += fmt::format("<details><summary>{}</summary><ul>", html_escaped(title));
  for (const auto& line : lines) body_ += fmt::format("<li>{}</li>\n", html_escaped(line));
  body_ += "</ul></details>\n";
}

void HtmlPage::add_table(const HtmlTable& table) { body_ += table_html(table); }

void HtmlPage::add_tables_beside(const std::vector<HtmlTable>& tables) {
  body_ += "<div class=\"beside\">";
  for (const auto& table : tables) body_ += table_html(table);
  body_ += "</div>\n";
}

void HtmlPage::add_chart(const HtmlChart& chart) {
  double most = 0;
  const auto height = [](double value) { return std::isfinite(value) ? std::max(value, 0.0) : 0; };
  for (const auto& bar : chart.bars) most = std::max({most, height(bar.value), height(bar.beside.value_or(0))});
  const double scale = most > 0 ? kChartHeight / most : 0;
  const std::string caption = html_escaped(fmt::format("{}; up to {:.3g}", chart.caption, most));
  body_ += fmt::format(
      "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"{}\">\n",
      caption, 10 * chart.bars.size(), kChartHeight, caption);
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const auto& bar = chart.bars[i];
    const double tall = scale * height(bar.value);
    body_ += fmt::format("<g><title>{}</title><rect x=\"{}\" y=\"{:.2f}\" width=\"9\" height=\"{:.2f}\"/>",
                         html_escaped(bar.told), 10 * i, kChartHeight - tall, tall);
    if (bar.beside) {
      body_ += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\"/>", 10 * i, 10 * i + 9,
                           kChartHeight - scale * height(*bar.beside));
    }
    body_ += "</g>\n";
  }
  body_ += "</svg></figure>\n";
}

void HtmlPage::add_answers(const std::vector<HtmlAnswer>& answers) {
  body_ += "<div class=\"answers\">";
  for (const auto& answer : answers) body_ += answer_html(answer);
  body_ += "</div>\n";
}

std::string HtmlPage::text() const {
  // The policy holds even if a text should ever get through as markup.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>"
      "<meta name=\"viewport\" content=\"width=device-width\"/><title>{}</title><style>{}</style></head>\n"
      "<body><main>\n{}</main><footer>Choral {}</footer></body></html>",
      title_, kPageStyle, body_, version());
}

Status write_html_file(OutputFile* file, const HtmlPage& page) {
  if (file == nullptr) return {};
  CHORAL_RETURN_IF_ERROR(file->write_line(page.text()));
  return file->commit();
}

}  // namespace choral::apps
