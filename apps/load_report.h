// What `load`, which measures traffic, and `plan`, which foretells it, say alike. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "tools/load_generator.h"

namespace choral::apps {

// In milliseconds; null where there were none.
nlohmann::ordered_json latency_json(const tools::LatencySummary& times);
// What --skew names: "in-turn", "uniform", "zipf".
Result<tools::AdapterSkew> adapter_skew_named(std::string_view name);

}  // namespace choral::apps
