// What is not counted here but looked up at a scrape, as Prometheus' records: the engine's figures and those of the process.
// Pure functions of their arguments, but process_families(), which reads /proc.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "base/system_files.h"
#include "serve/metrics/metrics.h"

namespace choral::serve {

struct EngineFacts {
  std::string model_name;
  ModelInfo model;
  bool prefix_caching = true;
  int64_t max_adapters = 0;  // that may be in memory together; 0: as many as have room
};

std::vector<prometheus::MetricFamily> engine_families(const EngineView& view, const EngineFacts& facts, double unix_s);
// Memory, processor time, open files and start, under the names that every exporter has. What cannot be read is left out.
std::vector<prometheus::MetricFamily> process_families(const SystemFiles& files = SystemFiles());

}  // namespace choral::serve
