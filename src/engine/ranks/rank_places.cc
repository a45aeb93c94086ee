#include "engine/ranks/rank_places.h"

#include "platform/platform.h"

namespace choral::engine {

Status check_device(const std::string& device, int rank, const std::string& first, const EngineOptions& options) {
  if (device != first) {
    return unavailable("rank {} computes on {} and rank 0 on {}: their bits are not alike; --device names one for all ranks",
                       rank, device, first);
  }
  if (options.fully_sharded_loras && device != platform::cpu_platform().name()) {
    return unsupported("--fully-sharded-loras: on device {} every rank has A of all adapters; leave the flag out", device);
  }
  return {};
}

Status check_cache(const Worker& worker, const EngineOptions& options) {
  const auto& session = worker.context().session;
  if (session.keeps_kv()) return {};
  return unsupported(
      "--tensor-parallel-size {}: device {} has no cache of {}, and ranks leave none to the host; choose another "
      "--kv-cache-dtype, or run on one device",
      options.tensor_parallel_size, session.platform().name(), dtype_name(worker.kv_dtype()));
}

int64_t share_of_cache(const EngineOptions& options, int64_t heads, int64_t all_heads) {
  return heads == all_heads ? options.kv_cache_bytes : options.kv_cache_bytes / all_heads * heads;
}

int64_t heads_of_keys(const ModelSizes& sizes) {
  int64_t heads = 0;
  for (const auto& layer : sizes.layers) heads += layer.kv_heads;
  return heads;
}

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
