#include "bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "terminal_text.h"
#include "text_table.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;

using kernels::MachinePeaks;
using tools::StepTiming;

// A peak, and what of a step is compared with it.
struct Roof {
  const char* key;
  const char* heading;
  double MachinePeaks::*peak;
  double (*rate)(double seconds, const StepTiming& timing);
};
double weight_gbps(double seconds, const StepTiming& t) { return t.weight_bytes / seconds * 1e-9; }
double gflops(double seconds, const StepTiming& t) { return t.flops / seconds * 1e-9; }
constexpr std::array<Roof, 4> kRoofs{{{"of_read_bandwidth", "of read", &MachinePeaks::read_gbps, weight_gbps},
                                      {"of_fma_peak", "of FMA", &MachinePeaks::fma_gflops, gflops},
                                      {"of_bf16_peak", "of bf16", &MachinePeaks::tile_gflops, gflops},
                                      {"of_int8_peak", "of int8", &MachinePeaks::int8_gops, gflops}}};

double peak_of(const BenchReport& report, const Roof& roof) { return (report.before.*roof.peak + report.after.*roof.peak) / 2; }

// Calls visit(roof, what the timing's products in `seconds` are of it) for each peak that there is.
template <class Visit>
void for_each_fraction(const BenchReport& report, const StepTiming& timing, double seconds, Visit visit) {
  for (const Roof& roof : kRoofs) {
    const double peak = peak_of(report, roof);
    if (peak > 0) visit(roof, seconds > 0 ? roof.rate(seconds, timing) / peak : 0);
  }
}

std::string name_of(const BenchRow& row) {
  return row.is_prefill ? fmt::format("prefill {}", row.timing.tokens) : fmt::format("decode {}", row.timing.batch);
}

constexpr int kPeaksName = 14;  // "peaks before  "

std::string peaks_text(const char* when, const MachinePeaks& p) {
  std::string out = fmt::format("peaks {:<6}  read {:.1f} GB/s", when, p.read_gbps);
  if (p.copy_gbps > 0) out += fmt::format(", copy {:.1f} GB/s", p.copy_gbps);
  out += fmt::format(", fp32 FMA {:.0f} GFLOP/s, int8 {:.0f} GOP/s", p.fma_gflops, p.int8_gops);
  if (p.tile_gflops > 0) out += fmt::format(", bf16 tiles {:.0f} GFLOP/s", p.tile_gflops);
  return out + "\n";
}

Json peaks_json(const MachinePeaks& p) {
  Json out{{"read_gbps", p.read_gbps}, {"fma_gflops", p.fma_gflops}, {"int8_gops", p.int8_gops}, {"tile_gflops", p.tile_gflops}};
  if (p.copy_gbps > 0) out["copy_gbps"] = p.copy_gbps;
  return out;
}

Json row_json(const BenchRow& row, const BenchReport& report) {
  const auto& t = row.timing;
  Json out{{"phase", row.is_prefill ? "prefill" : "decode"},
           {"batch", t.batch},
           {"tokens", t.tokens},
           {"steps", t.steps},
           {"median_ms", t.median_s * 1e3},
           {"best_ms", t.best_s * 1e3},
           {"tokens_per_s", t.tokens_per_s()},
           {"weight_gbps", t.weight_gbps()},
           {"gflops", t.gflops()},
           {"attention_share", t.attention_share},
           {"shared_tasks", t.shared_tasks}};
  if (t.host_s) out["host_ms"] = *t.host_s * 1e3;
  for_each_fraction(report, t, t.median_s, [&](const Roof& roof, double fraction) { out[roof.key] = fraction; });
  Json operators = Json::array();
  for (const auto& op : t.operators) operators.push_back({{"name", op.name}, {"calls", op.calls}, {"ms", op.seconds * 1e3}});
  out["operators"] = std::move(operators);
  Json products{{"ms", t.product_s * 1e3}};
  for_each_fraction(report, t, t.product_s, [&](const Roof& roof, double fraction) { products[roof.key] = fraction; });
  out["products"] = std::move(products);
  return out;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

TextTable bench_steps_table(const BenchReport& report) {
  const bool has_host = report.rows.front().timing.host_s.has_value();
  TextTable table("", 12);
  for (const char* heading : {"tokens/s", "ms/step", "(best)"}) table.add_column(heading, 10);
  if (has_host) table.add_column("host ms", 10);
  for (const char* heading : {"wts GB/s", "GFLOP/s"}) table.add_column(heading, 10);
  for_each_fraction(report, report.rows.front().timing, 0,
                    [&](const Roof& roof, double) { table.add_column(fmt::format("% {}", roof.heading), 11); });
  table.add_column("attention", 11);
  const auto percent = [](double fraction) { return fmt::format("{:.0f} %", 100 * fraction); };
  for (const BenchRow& row : report.rows) {
    const auto& t = row.timing;
    std::vector<std::string> cells{name_of(row), fmt::format("{:.1f}", t.tokens_per_s()), fmt::format("{:.2f}", t.median_s * 1e3),
                                   fmt::format("{:.2f}", t.best_s * 1e3)};
    if (has_host) cells.push_back(fmt::format("{:.3f}", t.host_s.value_or(0) * 1e3));
    cells.push_back(fmt::format("{:.1f}", t.weight_gbps()));
    cells.push_back(fmt::format("{:.1f}", t.gflops()));
    for_each_fraction(report, t, t.median_s, [&](const Roof&, double fraction) { cells.push_back(percent(fraction)); });
    cells.push_back(percent(t.attention_share));
    table.add_row(std::move(cells));
  }
  return table;
}

TextTable bench_operators_table(const BenchReport& report) {
  std::vector<std::string> names;
  TextTable table("ms of a step, calls", 22);
  for (const BenchRow& row : report.rows) {
    table.add_column(name_of(row), 18);
    for (const auto& op : row.timing.operators) {
      if (std::find(names.begin(), names.end(), op.name) == names.end()) names.push_back(op.name);
    }
  }
  const auto add_row = [&](const std::string& heading, auto text) {
    std::vector<std::string> cells{heading};
    for (const BenchRow& row : report.rows) cells.push_back(text(row.timing));
    table.add_row(std::move(cells));
  };
  for (const std::string& name : names) {
    add_row(name, [&](const StepTiming& t) {
      const auto found = std::find_if(t.operators.begin(), t.operators.end(), [&](const auto& op) { return op.name == name; });
      return found == t.operators.end() ? "" : fmt::format("{:.3f} {:>6.0f}", found->seconds * 1e3, found->calls);
    });
  }
  add_row("products, GB/s", [](const StepTiming& t) { return fmt::format("{:.1f}", weight_gbps(t.product_s, t)); });
  add_row("products, GFLOP/s", [](const StepTiming& t) { return fmt::format("{:.1f}", gflops(t.product_s, t)); });
  for (const Roof& roof : kRoofs) {
    const double peak = peak_of(report, roof);
    if (peak == 0) continue;
    add_row(fmt::format("products, {}", roof.heading), [&](const StepTiming& t) {
      return t.product_s > 0 ? fmt::format("{:.0f} %", 100 * roof.rate(t.product_s, t) / peak) : "";
    });
  }
  return table;
}

std::string bench_peaks_text(const BenchReport& report) {
  return report.no_peaks.empty() ? peaks_text("before", report.before) + peaks_text("after", report.after)
                                 : fmt::format("no peaks to compare with: {}\n", report.no_peaks);
}

std::string bench_remarks(const BenchReport& report) {
  std::string out = "Medians.";
  if (report.no_peaks.empty()) {
    out +=
        " Percentages are of the mean of both measurements of peaks, an operation counted as one of that kind: int8 products "
        "can pass the fp32 peak.";
  }
  if (report.rows.front().timing.host_s) out += " host: what of a step is not spent waiting for the device.";
  return out;
}

std::string bench_report_text(const BenchReport& report, bool with_operators, int columns) {
  std::string out = wrap_hanging(bench_peaks_text(report), columns, kPeaksName) + "\n" + bench_steps_table(report).text(columns);
  out += "\n" + wrap_hanging(bench_remarks(report), columns, 0) + "\n";
  if (!with_operators) return out;
  return out + "\n" + bench_operators_table(report).text(columns) + "\n" + wrap_hanging(kBenchOperatorsRemark, columns, 0) + "\n";
}

void add_bench_report(const BenchReport& report, Json& to) {
  const bool has_peaks = report.no_peaks.empty();
  to["peaks_before"] = has_peaks ? peaks_json(report.before) : Json();
  to["peaks_after"] = has_peaks ? peaks_json(report.after) : Json();
  to["no_peaks"] = has_peaks ? Json() : Json(report.no_peaks);
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) rows.push_back(row_json(row, report));
  to["results"] = std::move(rows);
}

}  // namespace choral::apps
