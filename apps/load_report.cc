#include "load_report.h"

#include <nlohmann/json.hpp>

namespace choral::apps {

nlohmann::ordered_json latency_json(const tools::LatencySummary& times) {
  if (times.count == 0) return nullptr;
  return {{"count", times.count},      {"mean_ms", times.mean * 1e3}, {"p50_ms", times.p50 * 1e3}, {"p90_ms", times.p90 * 1e3},
          {"p95_ms", times.p95 * 1e3}, {"p99_ms", times.p99 * 1e3},   {"max_ms", times.max * 1e3}};
}

Result<tools::AdapterSkew> adapter_skew_named(std::string_view name) {
  if (name == "in-turn") return tools::AdapterSkew::kInTurn;
  if (name == "uniform") return tools::AdapterSkew::kUniform;
  if (name == "zipf") return tools::AdapterSkew::kZipf;
  return invalid_argument("--skew {}: give in-turn, uniform or zipf", name);
}

}  // namespace choral::apps
