// A rank's cache has the places that the plan gives its layers, which the scheduler deals in for all ranks.
#pragma once

#include "engine/worker.h"

namespace choral::engine {

Status check_places(const Worker& worker, const EngineOptions& options, const KvPlan& plan);
// The error where a model's layers do not divide alike.
Status unlike_places(const EngineOptions& options);

}  // namespace choral::engine
