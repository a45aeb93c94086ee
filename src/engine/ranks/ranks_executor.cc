#include "engine/ranks/ranks_executor.h"

#include "base/out_of_memory.h"
#include "base/thread_affinity.h"
#include "base/thread_plan.h"
#include "engine/checkpoint_weights.h"
#include "engine/executor_facts.h"
#include "engine/ranks/rank_places.h"
#include "lora/joined_targets.h"
#include "platform/host_view.h"

namespace choral::engine {

// What ranks load from. Each reads the files through a source of its own.
class RanksExecutor::Loading {
 public:
  Loading(const EngineOptions& options, const ModelFiles& files, std::shared_ptr<const io::Checkpoint> checkpoint,
          const quant::WeightRequest& request)
      : files_(files) {
    for (int r = 0; r < options.tensor_parallel_size; ++r) {
      EngineOptions own = options;
      if (r > 0) own.on_progress = {};
      options_.push_back(std::move(own));
      weights_.push_back(std::make_unique<CheckpointWeights>(checkpoint, request));
    }
  }

  EngineOptions& options(int rank) { return options_[static_cast<size_t>(rank)]; }
  CheckpointWeights& weights(int rank) const { return *weights_[static_cast<size_t>(rank)]; }
  const ModelFiles& files() const { return files_; }
  std::vector<std::string>& notes() { return notes_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  const ModelFiles& files_;
  std::vector<EngineOptions> options_;
  std::vector<std::unique_ptr<CheckpointWeights>> weights_;
  std::vector<std::string> notes_;
};

RanksExecutor::RanksExecutor(int ranks) : collectives_(ranks), ranks_(static_cast<size_t>(ranks)) {
  for (auto& rank : ranks_) {
    rank.step = [this, &rank] {
      rank.status = rank.worker->execute_model(*input_, rank.unread);
      if (!rank.status.ok()) collectives_.give_up();
    };
  }
}

Status RanksExecutor::on_each(const std::function<Status(int rank)>& work) {
  std::vector<std::function<void()>> works;
  for (int r = 0; r < std::ssize(ranks_); ++r) {
    works.push_back([&work, &rank = ranks_[static_cast<size_t>(r)], r] {
      rank.status = or_out_of_memory("the model cannot be loaded", [&] { return work(r); });
    });
  }
  for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r].thread->begin(works[r]);
  works[0]();
  for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r].thread->wait();
  for (const auto& rank : ranks_) CHORAL_RETURN_IF_ERROR(rank.status);
  return {};
}

Result<std::unique_ptr<RanksExecutor>> RanksExecutor::load(EngineOptions& options, const ModelFiles& files,
                                                           const DraftMemory& draft) {
  CHORAL_TRY(const auto request, parse_weight_request(options.dtype, options.activations));
  settle_kv_dtype(files, options);
  CHORAL_TRY(auto checkpoint, io::Checkpoint::open(files.location));
  if (options.on_progress) options.on_progress({"load", checkpoint->description(), 0});
  const int count = options.tensor_parallel_size;
  std::unique_ptr<RanksExecutor> made(new RanksExecutor(count));
  for (int r = 1; r < count; ++r) {
    CHORAL_TRY(made->ranks_[static_cast<size_t>(r)].thread, RankThread::start(r));
  }
  Loading loading(options, files, checkpoint, request);
  CHORAL_TRY(const io::ConfigMap config, with_own_head(files.config, loading.weights(0), loading.notes()).while_(files.path));
  CHORAL_RETURN_IF_ERROR(made->open(options, loading, config));
  CHORAL_RETURN_IF_ERROR(made->plan(options, loading, draft).while_(files.path));
  CHORAL_RETURN_IF_ERROR(made->on_each([&](int rank) -> Status {
    const EngineOptions& own = loading.options(rank);
    CHORAL_RETURN_IF_ERROR(made->worker(rank).pack(loading.weights(rank), own).while_(files.path));
    return made->worker(rank).initialize_cache(own);
  }));
  for (int r = 1; r < count; ++r) {
    made->worker(r).leave_answers();
    for (const auto& [name, digest] : loading.weights(r).taken()) loading.weights(0).add_taken(name, digest);
  }
  CHORAL_RETURN_IF_ERROR(check_untaken(loading.weights(0).untaken(), config, loading.notes()));
  made->describe(loading);
  return made;
}

Status RanksExecutor::open(EngineOptions& options, Loading& loading, const io::ConfigMap& config) {
  // Each rank's threads stand together; where there are several NUMA nodes and a thread for each core, at caches of its own. The
  // thread that calls rank 0 is the engine's, and stays where it is.
  const int count = options.tensor_parallel_size;
  const ThreadPlan threads = Worker::threads_of(options, count);
  CHORAL_RETURN_IF_ERROR(on_each([&](int rank) -> Status {
    const ThreadPlan own_threads = threads.part(rank, count);
    if (rank > 0) stay_on(own_threads.seats.front().cpus);
    CHORAL_TRY(std::shared_ptr<ThreadPool> pool, ThreadPool::make(own_threads));
    CHORAL_TRY(ranks_[static_cast<size_t>(rank)].worker,
               Worker::make(loading.options(rank), architecture_of(loading.files().config), std::move(pool), rank));
    return {};
  }));
  options = loading.options(0);
  const auto device_of = [&](int rank) { return std::string(worker(rank).context().session.platform().name()); };
  for (int r = 0; r < count; ++r) CHORAL_RETURN_IF_ERROR(check_device(device_of(r), r, device_of(0), options));
  return on_each([&](int rank) -> Status {
    worker(rank).join({rank, count}, collectives_.of(rank));
    return worker(rank).find(config, loading.weights(rank), loading.options(rank)).while_(loading.files().path);
  });
}

Status RanksExecutor::plan(const EngineOptions& options, Loading& loading, const DraftMemory& draft) {
  const int count = options.tensor_parallel_size;
  CHORAL_TRY(const bool by_device, worker(0).has_own_memory());
  if (by_device) return plan_each(options, loading, draft);
  ModelSizes sizes = worker(0).sizes(options);
  for (int r = 1; r < count; ++r) sizes.add(worker(r).sizes(options));
  CHORAL_RETURN_IF_ERROR(worker(0).plan(sizes, options, draft));
  for (int r = 0; r < count; ++r) {
    const MemoryPlan& memory = worker(0).memory();
    CHORAL_RETURN_IF_ERROR(check_places(worker(r), options, memory.kv));
    if (r > 0) worker(r).take_plan(memory);
  }
  return {};
}

Status RanksExecutor::plan_each(const EngineOptions& options, Loading& loading, const DraftMemory& draft) {
  const int count = options.tensor_parallel_size;
  int64_t state_bytes = 0, heads = 0;
  for (int r = 0; r < count; ++r) {
    const ModelSizes sizes = worker(r).sizes(options);
    state_bytes += sizes.state_bytes;
    heads += heads_of_keys(sizes);
  }
  for (int r = 0; r < count; ++r) {
    ModelSizes sizes = worker(r).sizes(options);
    sizes.state_bytes = state_bytes;  // which are the host's
    EngineOptions own = loading.options(r);
    own.kv_cache_bytes = share_of_cache(options, heads_of_keys(sizes), heads);
    CHORAL_RETURN_IF_ERROR(worker(r).plan(sizes, own, r == 0 ? draft : DraftMemory()));
    CHORAL_RETURN_IF_ERROR(check_cache(worker(r), options));
  }
  MemoryPlan least = worker(0).memory();
  for (int r = 1; r < count; ++r) least.limit_to(worker(r).memory().room());
  for (int r = 0; r < count; ++r) {
    CHORAL_RETURN_IF_ERROR(check_places(worker(r), options, worker(0).memory().kv));
    MemoryPlan own = worker(r).memory();
    own.limit_to(least.room());
    worker(r).take_plan(own);
  }
  return {};
}

void RanksExecutor::describe(const Loading& loading) {
  facts_ = facts_of(*ranks_.front().worker, loading.weights(0).digest());
  std::vector<std::span<const lora::LoRATarget>> targets;
  for (const auto& rank : ranks_) targets.push_back(rank.worker->loaded().model->lora_targets());
  targets_ = lora::join_targets(targets);
  facts_.lora_targets = targets_;
  for (auto rank = ranks_.begin() + 1; rank != ranks_.end(); ++rank) {
    facts_.weight_bytes += rank->worker->loaded().weight_bytes;
    facts_.kv_bytes += rank->worker->kv_bytes();
    facts_.threads += rank->worker->context().kernel.pool.size();
  }
  facts_.notes.push_back(fmt::format(
      "tensor parallel: {} ranks of this process{}, {} threads in all; threads and weights above are those of the first",
      ranks_.size(), platform::host_reads(worker(0).context().session) ? "" : " with a device each", facts_.threads));
  facts_.notes.insert(facts_.notes.end(), loading.notes().begin(), loading.notes().end());
}

// Ready where every rank has it. On devices it comes to all at once; those that have it keep it for when it is asked for again.
Result<lora::Readiness> RanksExecutor::add_adapter(lora::AdapterKey key, lora::PackedVoice voice) {
  std::vector<lora::LoRAModelManager*> with_it;
  Status error;
  for (auto& rank : ranks_) {
    const auto added = rank.worker->lora_manager().add_adapter(key, voice);
    if (!added.ok() && error.ok()) error = added.status();
    if (added.ok() && *added == lora::Readiness::kReady) with_it.push_back(&rank.worker->lora_manager());
  }
  if (with_it.size() == ranks_.size()) return lora::Readiness::kReady;
  for (auto* manager : with_it) manager->remove_adapter(key);
  if (!error.ok()) return error;
  return lora::Readiness::kComing;
}

void RanksExecutor::take_adapters() {
  for (auto& rank : ranks_) rank.worker->lora_manager().take_uploaded();
}

void RanksExecutor::set_wake(std::function<void()> wake) {
  for (auto& rank : ranks_) rank.worker->lora_manager().set_wake(wake);
}

void RanksExecutor::remove_adapter(lora::AdapterKey key) {
  for (auto& rank : ranks_) rank.worker->lora_manager().remove_adapter(key);
}

Status RanksExecutor::add_request(const NewRequest& request) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Status added = ranks_[r].worker->add_request(request);
    if (added.ok()) continue;
    for (size_t before = 0; before < r; ++before) ranks_[before].worker->drop_request(request.id);
    return added;
  }
  return {};
}

Status RanksExecutor::execute_model(const StepInput& input, StepOutput& out) {
  collectives_.begin_step();
  input_ = &input;
  for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r].thread->begin(ranks_[r].step);
  Status status = ranks_.front().worker->execute_model(input, out);
  if (!status.ok()) collectives_.give_up();
  for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r].thread->wait();
  for (size_t r = 1; r < ranks_.size() && status.ok(); ++r) status = ranks_[r].status;
  return status;
}

std::vector<std::string> RanksExecutor::take_device_notes() {
  std::vector<std::string> notes;
  for (auto& rank : ranks_) {
    for (auto& note : rank.worker->take_device_notes()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace choral::engine
