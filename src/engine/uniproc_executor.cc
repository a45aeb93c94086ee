#include "engine/uniproc_executor.h"

#include "engine/checkpoint_weights.h"
#include "engine/executor_facts.h"

namespace choral::engine {

Result<std::unique_ptr<UniprocExecutor>> UniprocExecutor::load(EngineOptions& options, const ModelFiles& files,
                                                               std::shared_ptr<ThreadPool> pool, const DraftMemory& draft) {
  CHORAL_TRY(const auto request, parse_weight_request(options.dtype, options.activations));
  settle_kv_dtype(files, options);
  CHORAL_TRY(auto worker, Worker::make(options, architecture_of(files.config), std::move(pool)));
  CHORAL_TRY(auto checkpoint, io::Checkpoint::open(files.location));
  if (options.on_progress) options.on_progress({"load", checkpoint->description(), 0});
  CheckpointWeights weights(checkpoint, request);
  std::vector<std::string> notes;
  CHORAL_TRY(const io::ConfigMap config, with_own_head(files.config, weights, notes).while_(files.path));
  CHORAL_RETURN_IF_ERROR(worker->load(config, weights, options, draft).while_(files.path));
  CHORAL_RETURN_IF_ERROR(check_untaken(weights.untaken(), config, notes));
  CHORAL_RETURN_IF_ERROR(worker->initialize_cache(options));
  return std::unique_ptr<UniprocExecutor>(new UniprocExecutor(std::move(worker), notes, weights.digest()));
}

Result<std::unique_ptr<UniprocExecutor>> UniprocExecutor::load(EngineOptions& options, const io::ConfigMap& config,
                                                               quant::WeightSource& weights, const DraftMemory& draft) {
  CHORAL_TRY(auto worker, Worker::make(options, architecture_of(config)));
  CHORAL_RETURN_IF_ERROR(worker->load(config, weights, options, draft));
  CHORAL_RETURN_IF_ERROR(worker->initialize_cache(options));
  return std::unique_ptr<UniprocExecutor>(new UniprocExecutor(std::move(worker), {}, {}));
}

UniprocExecutor::UniprocExecutor(std::unique_ptr<Worker> worker, const std::vector<std::string>& notes,
                                 std::string weights_digest)
    : worker_(std::move(worker)), facts_(facts_of(*worker_, std::move(weights_digest))) {
  facts_.notes.insert(facts_.notes.end(), notes.begin(), notes.end());
}

}  // namespace choral::engine
