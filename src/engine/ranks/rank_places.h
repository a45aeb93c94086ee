// What the ranks of one model must have alike: the kind of device that computes, and the places that the plan gives a rank's
// layers, which the scheduler deals in for all ranks.
#pragma once

#include "engine/worker.h"

namespace choral::engine {

// By its name, rank `rank`'s beside the first one's, with these options.
Status check_device(const std::string& device, int rank, const std::string& first, const EngineOptions& options);
// That a device of several keeps keys and values itself. After the plan.
Status check_cache(const Worker& worker, const EngineOptions& options);
// Of --kv-cache-memory, which is asked for by all ranks together, what falls to so many of all heads of keys.
int64_t share_of_cache(const EngineOptions& options, int64_t heads, int64_t all_heads);
int64_t heads_of_keys(const ModelSizes& sizes);
Status check_places(const Worker& worker, const EngineOptions& options, const KvPlan& plan);
// The error where a model's layers do not divide alike.
Status unlike_places(const EngineOptions& options);

}  // namespace choral::engine
