// `choral bench --adapters N`: what adapters cost beside the base alone, in one run: throughput of mixed batches, packing,
// memory, and (with a MODEL) how long a cold adapter keeps its own request waiting, and how much of that others notice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "progress.h"
#include "text_table.h"
#include "tools/step_timer.h"

namespace choral::apps {

struct AdapterBenchFlags {
  int count = 0;  // --adapters; 0 = this bench is not wanted
  std::vector<int> ranks{8, 16, 64};
  std::string skew = "distinct";  // distinct | zipf | one
};

Status check_adapter_flags(const AdapterBenchFlags& flags);

struct AdapterCase {
  std::string name;  // "decode 32, 32 distinct"
  bool is_base = false;
  tools::StepTiming timing;
  double of_base = 1;  // throughput beside the base's in the same run
};

struct AdapterReport {
  std::vector<AdapterCase> cases;
  double pack_ms = 0;       // of one adapter, mean
  double packed_bytes = 0;  // of one adapter, mean
  double file_bytes = 0;    // of its tensors as stored
  int count = 0;
};

// Makes the adapters, registers them with the bench's model and times the casts: base only, one adapter for all, and the skew's.
Result<AdapterReport> measure_adapters(tools::StepTimer& bench, const AdapterBenchFlags& flags, const std::vector<int>& batches,
                                       const std::vector<int>& prefills, int context, int steps, Progress& progress);

inline constexpr std::string_view kAdapterBenchRemark = "Steps of base and adapters alternate; the ratio is of medians.";

std::string adapter_bench_head(const AdapterReport& report, const AdapterBenchFlags& flags);                // one line
TextTable adapter_bench_table(const AdapterReport& report);                                                 // cases, one a line
std::string adapter_report_text(const AdapterReport& report, const AdapterBenchFlags& flags, int columns);  // of the terminal

struct LoadGapReport {
  int loads = 0;
  double hot_first_token_ms = 0;   // median, adapter in memory
  double cold_first_token_ms = 0;  // median, adapter's files in the page cache only
  double quiet_gap_ms = 0;         // the longest time between two tokens of a bystander while nothing is loaded
  double loading_gap_ms = 0;       // while adapters are loaded one after the other
};

// Loads `options.model`, which is the bench's, anew with `loads` cold adapters of rank 8 in a folder of its own, which is
// removed.
Result<LoadGapReport> measure_load_gap(EngineOptions options, const tools::StepTimer& bench, int loads, Progress& progress);
std::string load_gap_text(const LoadGapReport& report);

}  // namespace choral::apps
