// What `choral bench` found, as text and as JSON: each step beside what the CPU or the device could give at most.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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

// For lines of `columns`; 0: any.
std::string bench_report_text(const BenchReport& report, bool with_operators, int columns);
// "peaks_before", "peaks_after", "no_peaks", "results".
void add_bench_report(const BenchReport& report, nlohmann::ordered_json& to);

}  // namespace choral::apps
