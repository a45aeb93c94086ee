#include "bench_page.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace choral::apps {
namespace {

constexpr double kPercent = 100;

}  // namespace

void draw_bars(HtmlTable& table, size_t column, double whole) {
  const auto figure = [column](const auto& row) {
    const std::string& text = row.at(column).text;
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  double most = whole;
  for (const auto& row : table.rows) most = whole > 0 ? whole : std::max(most, figure(row));
  for (auto& row : table.rows) {
    if (row.at(column).text.empty() || most <= 0) continue;
    row[column].look = HtmlCell::Look::kBar;
    row[column].share = figure(row) / most;
  }
}

void add_bench_report(const BenchReport& report, HtmlPage& to) {
  to.add_heading("Steps");
  to.add_text(bench_peaks_text(report));
  // Prompts have many times a decode's throughput: each kind has its own longest bar.
  for (const bool prefill : {false, true}) {
    BenchReport part{.before = report.before, .after = report.after, .no_peaks = report.no_peaks, .rows = {}};
    std::copy_if(report.rows.begin(), report.rows.end(), std::back_inserter(part.rows),
                 [&](const BenchRow& row) { return row.is_prefill == prefill; });
    if (part.rows.empty()) continue;
    HtmlTable table = html_table(prefill ? "Prompts" : "Decode", bench_steps_table(part));
    table.headings.front() = "case";
    draw_bars(table, 1, 0);
    for (size_t i = 2; i < table.headings.size(); ++i) {
      if (table.headings[i].starts_with("% ")) draw_bars(table, i, kPercent);
    }
    to.add_table(table);
  }
  to.add_text(bench_remarks(report));
  to.add_heading("Operators");
  to.add_table(html_table("", bench_operators_table(report)));
  to.add_text(kBenchOperatorsRemark);
}

void add_adapter_report(const AdapterReport& report, const AdapterBenchFlags& flags, HtmlPage& to) {
  to.add_heading("Adapters");
  to.add_text(adapter_bench_head(report, flags));
  HtmlTable table = html_table("", adapter_bench_table(report));
  table.headings.front() = "case";
  const auto of_base = std::find(table.headings.begin(), table.headings.end(), "of base") - table.headings.begin();
  draw_bars(table, static_cast<size_t>(of_base), kPercent);
  to.add_table(table);
  to.add_text(kAdapterBenchRemark);
}

}  // namespace choral::apps
