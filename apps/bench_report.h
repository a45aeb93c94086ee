// What `choral bench` found, as text and as JSON: each step beside what the CPU or the device could give at most.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text_table.h"
#include "tools/step_timer.h"

namespace choral::apps {

struct BenchRow {
  bool is_prefill = false;
  tools::StepTiming timing;
};

struct BenchReport {
  kernels::MachinePeaks before, after;  // of the same run; figures are compared with their mean
  std::string no_peaks;                 // why there are none; empty: there are
  std::vector<BenchRow> rows;
};

inline constexpr std::string_view kBenchOperatorsRemark =
    "Operators are timed one by one, in steps of their own; on a device each is waited for.";

double median(std::vector<double> values);  // 0 of none

TextTable bench_steps_table(const BenchReport& report);      // steps, one a line
TextTable bench_operators_table(const BenchReport& report);  // operators down, steps across
std::string bench_peaks_text(const BenchReport& report);     // or why there are none
std::string bench_remarks(const BenchReport& report);
// For lines of `columns`; 0: any.
std::string bench_report_text(const BenchReport& report, bool with_operators, int columns);
// "peaks_before", "peaks_after", "no_peaks", "results".
void add_bench_report(const BenchReport& report, nlohmann::ordered_json& to);

}  // namespace choral::apps
