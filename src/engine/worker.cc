#include "engine/worker.h"

#include "base/clock.h"
#include "base/cpu_share.h"
#include "base/cpu_topology.h"
#include "base/log.h"
#include "base/thread_plan.h"
#include "engine/options_check.h"

namespace choral::engine {
namespace {

Result<lora::LoRAConfig> read_lora_config(const EngineOptions& options) {
  lora::LoRAConfig config;
  if (options.max_cpu_loras > 0) config.max_cpu_loras = options.max_cpu_loras;
  // Without a limit of its own, a step has as many as it has requests, or as may be in memory.
  config.max_loras = options.max_loras > 0 ? options.max_loras : config.max_cpu_loras.value_or(options.max_num_seqs);
  config.fully_sharded_loras = options.fully_sharded_loras;
  config.max_lora_rank = options.max_lora_rank;
  config.lora_extra_vocab_size = options.lora_extra_vocab_size;
  config.bias_enabled = options.lora_bias;
  CHORAL_TRY(config.lora_dtype, lora::parse_lora_dtype(options.lora_dtype));
  CHORAL_RETURN_IF_ERROR(config.validate());
  return config;
}

// The type of stacks in a device's memory: what adapters shall be stored as, or exact for every file.
DType stack_type(lora::LoRADType type) {
  if (type == lora::LoRADType::kBFloat16) return DType::kBF16;
  return type == lora::LoRADType::kFloat16 ? DType::kF16 : DType::kF32;
}

}  // namespace

Worker::Worker(std::shared_ptr<ThreadPool> pool, DeviceSetup device)
    : pool_(std::move(pool)),
      device_(std::move(device)),
      ctx_(*device_.session, *pool_, cpu_level()),
      notes_(std::move(device_.notes)) {}

ThreadPlan Worker::threads_of(const EngineOptions& options, int least) {
  const int threads = options.threads > 0 ? options.threads : ThreadPool::default_size();
  const auto named = parse_numa(options.numa);
  const Seating seating = named.ok() ? *named : Seating::kWhereAllAre;  // check_options() says what is wrong
  return ThreadPlan::on(cpu_topology(SystemFiles(), allowed_cpus()), std::max(threads, least), seating);
}

Result<std::unique_ptr<Worker>> Worker::make(EngineOptions& options, const std::string& architecture,
                                             std::shared_ptr<ThreadPool> pool, int place) {
  CHORAL_RETURN_IF_ERROR(check_options(options));
  if (pool == nullptr) {
    CHORAL_TRY(pool, ThreadPool::make(threads_of(options)));
  }
  CHORAL_TRY(auto device, set_up_device(options, architecture, *pool, place));
  std::unique_ptr<Worker> worker(new Worker(std::move(pool), std::move(device)));
  if (const auto fewer = options.threads > 0 ? std::string() : cpu_share().reason(); !fewer.empty()) {
    worker->notes_.push_back(fmt::format("threads: {}; --threads changes it", fewer));
  }
  if (const auto& seats = worker->pool_->plan().seats; !seats.front().cpus.empty()) {
    worker->notes_.push_back(fmt::format("threads: each stays at one of {} L3 caches", seats.back().domain + 1));
  }
  CHORAL_TRY(worker->kv_dtype_, parse_kv_dtype(options.kv_cache_dtype));
  CHORAL_TRY(worker->lora_config_, read_lora_config(options));
  return worker;
}

void Worker::join(const layers::Ranks& share, platform::Collective& ranks) {
  device_.forms.ranks = share;
  ctx_.ranks = &ranks;
}

Status Worker::find(const io::ConfigMap& config, quant::WeightSource& source, const EngineOptions& options) {
  const std::string told = config.to_json();
  config_digest_ = sha256(std::as_bytes(std::span(told)));
  CHORAL_TRY(found_, find_weights(config, ctx_.session, source, options.max_model_len, device_.forms));
  expect_cache(sizes(options), kv_dtype_, ctx_.session);
  return {};
}

Result<bool> Worker::has_own_memory() const {
  CHORAL_TRY(const auto memory, ctx_.session.device_memory());
  return !platform::host_reads(ctx_.session) && !(memory && memory->is_hosts);
}

Status Worker::plan(const ModelSizes& sizes, const EngineOptions& options, const DraftMemory& draft) {
  if (sizes.positions < found_.model->max_positions()) {
    notes_.push_back(fmt::format(
        "texts of up to {} tokens are taken, since a text of this model is computed in one step (--max-num-batched-tokens)",
        sizes.positions));
  }
  CHORAL_TRY(memory_, plan_model_memory(sizes, options, ctx_.session, kv_dtype_, draft));
  if (auto note = limit_note(memory_.machine); !note.empty()) notes_.push_back("memory: " + std::move(note));
  if (!memory_.warning.empty()) {
    CHORAL_LOG(kWarn, "memory: {}", memory_.warning);
    notes_.push_back("memory: " + memory_.warning);
  }
  if (options.on_progress) options.on_progress({"memory", memory_.text(), 0});
  return {};
}

Status Worker::pack(quant::WeightSource& source, const EngineOptions& options) {
  const double begin = now_s();
  const auto cache = open_packed_cache(source, options);
  if (cache != nullptr) source.set_packed_layers(&cache->layers());
  auto loaded = pack_weights(ctx_, std::move(found_), source, device_.forms.fusion, options.on_progress);
  source.set_packed_layers(nullptr);
  CHORAL_TRY(loaded_, std::move(loaded));
  if (cache != nullptr) {
    const std::string told = cache->finish(now_s() - begin);
    packed_file_ = cache->file();
    if (!told.empty() && options.on_progress) options.on_progress({"packed", told, 1});
    if (!told.empty()) notes_.push_back("packed weights: " + told);
  }
  for (auto& note : ctx_.session.take_notes()) notes_.push_back(std::move(note));  // of weights that the device did not take
  notes_.insert(notes_.end(), loaded_.notes.begin(), loaded_.notes.end());
  return {};
}

std::unique_ptr<PackedCache> Worker::open_packed_cache(const quant::WeightSource& source, const EngineOptions& options) const {
  // What others bring to packing is not told by the files.
  const bool is_own = &ctx_.session.platform() == &platform::cpu_platform() && options.layer_overrides == nullptr &&
                      device_.forms.schemes.empty();
  if (!is_own || source.checkpoint() == nullptr) return nullptr;
  const layers::Ranks& ranks = device_.forms.ranks;
  const auto forms =
      fmt::format("--dtype {} --quantization {} --activations {}, rank {} of {}, level {}", options.dtype, options.quantization,
                  options.activations, ranks.rank, ranks.count, cpu_level_name(ctx_.kernel.level));
  return PackedCache::open(
      {.files = source.checkpoint()->identity(), .forms = forms, .config = config_digest_, .weights = source.digest()},
      options.packed_cache, *pool_);
}

Status Worker::load(const io::ConfigMap& config, quant::WeightSource& source, const EngineOptions& options,
                    const DraftMemory& draft) {
  CHORAL_RETURN_IF_ERROR(find(config, source, options));
  CHORAL_RETURN_IF_ERROR(plan(sizes(options), options, draft));
  return pack(source, options);
}

Status Worker::initialize_cache(const EngineOptions& options) {
  auto& model = *loaded_.model;
  notes_.insert(notes_.end(), memory_.kv.notes.begin(), memory_.kv.notes.end());
  CHORAL_TRY(auto pool, KvPool::make(ctx_.session, model, kv_dtype_, memory_.kv));
  kv_pool_ = std::move(pool);
  if (memory_.kv.state_slots > 0) {
    CHORAL_TRY(state_pool_, StatePool::make(model, memory_.kv.state_slots));
  }
  for (auto& note : ctx_.session.take_notes()) notes_.push_back(std::move(note));  // of a cache that the device does not know
  if (ctx_.session.samples())
    notes_.push_back("sampling: on the device; rows with typical_p, top_n_sigma or XTC on the host, on copies of their logits");
  lora_manager_.emplace(options.max_num_seqs, lora_config_.fully_sharded_loras);
  CHORAL_RETURN_IF_ERROR(give_adapters_to_device(options));
  runner_ = std::make_unique<ModelRunner>(ctx_, model, *lora_manager_, options.max_num_batched_tokens, options.max_num_seqs,
                                          lora_config_.lora_extra_vocab_size, memory_.kv.groups.parts);
  return {};
}

// A slot for every voice that a step may have, as long as the device's memory lasts.
Status Worker::give_adapters_to_device(const EngineOptions& options) {
  if (platform::host_reads(ctx_.session)) return {};
  if (const Status own = ctx_.session.computes_adapters(); !own.ok()) {
    notes_.push_back("adapters are computed on the host, on copies of their rows: " + own.message());
    return {};
  }
  const lora::LoRAMemoryPoolSize size{.max_slots = options.max_num_seqs,
                                      .budget_bytes = options.adapter_memory_bytes,
                                      .dtype = stack_type(lora_config_.lora_dtype)};
  CHORAL_TRY(auto adapters, lora::StackedAdapters::make(ctx_, loaded_.model->lora_targets(), size, options.max_num_seqs,
                                                        options.max_num_batched_tokens, writes_beside_));
  const bool beside = adapters->uploads_beside();
  lora_manager_->use_device(std::move(adapters));
  notes_.push_back(fmt::format("adapters: up to {} in slots of the device's memory, as {}, written {}", size.max_slots,
                               dtype_name(size.dtype),
                               beside ? "beside the steps" : "between two steps, while all requests wait"));
  return {};
}

std::vector<std::string> Worker::take_device_notes() {
  auto notes = device_.session->take_notes();
  if (lora_manager_) {
    for (auto& note : lora_manager_->take_notes()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace choral::engine
