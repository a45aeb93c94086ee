// What an engine is made of and what it says of itself, as JSON: the options under the names that EngineOptions has, adapters and
// the model as the C API and the server tell them. For .cc files only (requests/json.h). Pure; any thread.
#pragma once

#include <string_view>

#include "choral/llm.h"
#include "requests/json.h"

namespace choral::requests {

// An unknown name is an error that says the nearest. Not from JSON: callbacks, classes, an adapter's bytes.
Result<EngineOptions> read_engine_options(std::string_view json);

struct AdapterLoad {
  AdapterSpec spec;
  bool replace = false;
  std::optional<int> expected_generation;
};
// {"name": …, "path": …, "pinned": …, "replace": …, "expected_generation": …}
Result<AdapterLoad> read_adapter_load(std::string_view json);

Json adapter_json(const AdapterInfo& adapter);  // all but its path and its error, which may name paths
Json adapter_layer_json(const AdapterLayer& layer);
Json running_answer_json(const RunningAnswer& answer);
Json model_json(const ModelInfo& model);
Json stats_json(const EngineStats& stats);

}  // namespace choral::requests
