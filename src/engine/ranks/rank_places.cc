#include "engine/ranks/rank_places.h"

namespace choral::engine {

Status check_places(const Worker& worker, const EngineOptions& options, const KvPlan& plan) {
  const ModelSizes own = worker.sizes(options);
  const auto places =
      kv_groups_of(own.layers, worker.kv_dtype(), options.max_model_len > 0 ? options.max_model_len : own.positions);
  if (places.parts == plan.groups.parts && places.windows == plan.groups.windows) return {};
  return unlike_places(options);
}

Status unlike_places(const EngineOptions& options) {
  return unsupported(
      "--tensor-parallel-size {}: layers of this model keep keys of unlike sizes, which do not divide alike; choose another size",
      options.tensor_parallel_size);
}

}  // namespace choral::engine
