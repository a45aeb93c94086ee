#include "engine/ranks/process_rank.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/cpu_level.h"
#include "base/cpu_share.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/thread_affinity.h"
#include "base/thread_plan.h"
#include "engine/checkpoint_weights.h"
#include "engine/executor_facts.h"
#include "engine/ranks/rank_places.h"
#include "engine/ranks/step_bytes.h"
#include "lora/joined_targets.h"

namespace choral::engine {
namespace {

// What ranks tell each other first.
struct Greeting {
  std::string program;  // version and what of the options must be the same
  std::string host;
  std::vector<int> cpus;
};
// Once the model's tensors are found.
struct Found {
  std::vector<layers::KvShape> layers;
  int64_t state_bytes = 0, weight_bytes = 0;
  std::string device;
};
// Once it is known what there is room for.
struct Room {
  std::vector<int32_t> parts, windows;
  MemoryRoom memory;
};
// In the end.
struct Loaded {
  std::vector<std::string> tensors;  // that it read of its files, and what it found there
  std::vector<Sha256Digest> digests;
  int64_t weight_bytes = 0, kv_bytes = 0;
  int threads = 0;
};

void fields(auto& io, RecordOf<Greeting> auto& r) { io(r.program, r.host, r.cpus); }
void fields(auto& io, RecordOf<Found> auto& r) { io(r.layers, r.state_bytes, r.weight_bytes, r.device); }
void fields(auto& io, RecordOf<Room> auto& r) {
  io(r.parts, r.windows, r.memory.blocks, r.memory.state_slots, r.memory.max_model_len, r.memory.adapter_bytes);
}
void fields(auto& io, RecordOf<Loaded> auto& r) { io(r.tensors, r.digests, r.weight_bytes, r.kv_bytes, r.threads); }

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// What gives other bits, or other places of a token, on another rank.
std::string program_of(const EngineOptions& o) {
  return fmt::format(
      "Choral {} --dtype {} --quantization {} --activations {} --kv-cache-dtype {} --max-model-len {} --max-num-seqs {} "
      "--max-num-batched-tokens {} --kv-cache-memory {} --enable-prefix-caching={} --lora-dtype {} --lora-extra-vocab-size {} "
      "--lora-bias={} --max-loras {} --max-cpu-loras {} --fully-sharded-loras={} --fuse {} --custom-ops {} --numerics {}",
      version(), o.dtype, o.quantization, o.activations, o.kv_cache_dtype, o.max_model_len, o.max_num_seqs,
      o.max_num_batched_tokens, o.kv_cache_bytes, o.enable_prefix_caching, o.lora_dtype, o.lora_extra_vocab_size, o.lora_bias,
      o.max_loras, o.max_cpu_loras, o.fully_sharded_loras, o.fuse, o.custom_ops, cpu_level_name(cpu_level()));
}

bool share_any(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int cpu) { return std::find(b.begin(), b.end(), cpu) != b.end(); });
}

}  // namespace

class ProcessRank::Loading {
 public:
  Loading(ProcessRank& self, EngineOptions& options, const ModelFiles& files) : self_(self), options_(options), files_(files) {}

  Status run(const DraftMemory& draft) {
    CHORAL_RETURN_IF_ERROR(greet());
    CHORAL_TRY(const auto found, agree<Found>([&](Found& own) { return find(own); }));
    CHORAL_TRY(const auto rooms, agree<Room>([&](Room& own) { return plan(found, draft, own); }));
    CHORAL_RETURN_IF_ERROR(take_room(rooms));
    CHORAL_TRY(const auto loaded, agree<Loaded>([&](Loaded& own) { return pack(own); }));
    return describe(loaded);
  }

 private:
  int rank() const { return self_.channel_.rank(); }
  int ranks() const { return self_.channel_.ranks(); }
  bool is_here(int r) const { return hosts_[static_cast<size_t>(r)] == hosts_[static_cast<size_t>(rank())]; }

  // Fills this rank's record and gives those of all. The first error of any rank is everybody's.
  template <class Record, class Fill>
  Result<std::vector<Record>> agree(const Fill& fill) {
    Record own;
    Status status = or_out_of_memory("the model cannot be loaded", [&] { return fill(own); });
    CHORAL_TRY(const auto told, self_.channel_.exchange(to_bytes(status, own)));
    std::vector<Record> all(told.size());
    for (size_t r = 0; r < told.size(); ++r) {
      Status there;
      if (!from_bytes(told[r], there, all[r])) return self_.channel_.lose(static_cast<int>(r), "runs another version of Choral");
      if (there.ok()) continue;
      self_.channel_.link().end_together();
      return std::move(there).while_(self_.channel_.name_of(static_cast<int>(r)));
    }
    return all;
  }

  Status greet() {
    CHORAL_TRY(const auto all, agree<Greeting>([&](Greeting& own) -> Status {
                 own = {program_of(options_), host_name(), allowed_cpus()};
                 return {};
               }));
    for (const auto& greeting : all) hosts_.push_back(greeting.host);
    self_.channel_.set_hosts(hosts_);
    int here = 0, place = 0;  // ranks of this machine whose CPUs are this one's too
    for (int r = 0; r < ranks(); ++r) {
      const auto& theirs = all[static_cast<size_t>(r)];
      if (theirs.program != all.front().program) {
        return invalid_argument("{} was started otherwise than rank 0: {} there, {} here", self_.channel_.name_of(r),
                                theirs.program, all.front().program);
      }
      if (!is_here(r) || !share_any(theirs.cpus, all[static_cast<size_t>(rank())].cpus)) continue;
      if (r < rank()) ++place;
      ++here;
    }
    warn_of_idle_cpus(all);
    threads_ = Worker::threads_of(options_, options_.threads > 0 ? 1 : here);
    if (options_.threads == 0 && here > 1) threads_ = threads_.part(place, here);
    return {};
  }

  // mpirun gives each process one core, unless told otherwise. The first rank of a machine says so.
  void warn_of_idle_cpus(const std::vector<Greeting>& all) const {
    std::set<int> used;
    int first = ranks();
    for (int r = ranks() - 1; r >= 0; --r) {
      if (!is_here(r)) continue;
      first = r;
      used.insert(all[static_cast<size_t>(r)].cpus.begin(), all[static_cast<size_t>(r)].cpus.end());
    }
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (first != rank() || std::ssize(used) >= cpus) return;
    CHORAL_LOG(kWarn, "{}: the ranks here may run on {} of {} CPUs; mpirun binds processes to cores unless told --bind-to none",
               self_.channel_.name_of(rank()), used.size(), cpus);
  }

  Status find(Found& own) {
    CHORAL_TRY(const auto request, parse_weight_request(options_.dtype, options_.activations));
    CHORAL_TRY(auto checkpoint, io::Checkpoint::open(files_.location));
    if (options_.on_progress) options_.on_progress({"load", checkpoint->description(), 0});
    weights_ = std::make_unique<CheckpointWeights>(std::move(checkpoint), request);
    CHORAL_TRY(config_, with_own_head(files_.config, *weights_, notes_).while_(files_.path));
    if (rank() > 0) stay_on(threads_.seats.front().cpus);  // the first's thread is another than the engine's
    CHORAL_TRY(std::shared_ptr<ThreadPool> pool, ThreadPool::make(threads_));
    const auto place = static_cast<int>(std::count(hosts_.begin(), hosts_.begin() + rank(), hosts_[static_cast<size_t>(rank())]));
    CHORAL_TRY(self_.worker_, Worker::make(options_, architecture_of(files_.config), std::move(pool), place));
    Worker& worker = *self_.worker_;
    worker.join({rank(), ranks()}, self_.collective_);
    worker.write_adapters_between_steps();
    CHORAL_RETURN_IF_ERROR(worker.find(config_, *weights_, options_).while_(files_.path));
    const ModelSizes sizes = worker.sizes(options_);
    own = {sizes.layers, sizes.state_bytes, sizes.weight_bytes, std::string(worker.context().session.platform().name())};
    return {};
  }

  // By what this machine has, for the ranks that are here; or by what this rank's device has, for the rank alone.
  Status plan(const std::vector<Found>& found, const DraftMemory& draft, Room& own) {
    CHORAL_TRY(const bool by_device, self_.worker_->has_own_memory());
    ModelSizes here = self_.worker_->sizes(options_);
    int count = 1;
    int64_t heads = 0;
    for (int r = 0; r < ranks(); ++r) {
      const auto& [layers, state_bytes, weight_bytes, device] = found[static_cast<size_t>(r)];
      if (layers.size() != here.layers.size()) return corrupt("{} found another model in its files", self_.channel_.name_of(r));
      CHORAL_RETURN_IF_ERROR(check_device(device, r, found.front().device, options_));
      const ModelSizes theirs{layers, state_bytes, weight_bytes, 0};
      heads += heads_of_keys(theirs);
      if (r == rank() || !is_here(r)) continue;
      if (by_device) {
        here.state_bytes += state_bytes;  // which are the host's
      } else {
        here.add(theirs);
      }
      ++count;
    }
    EngineOptions options = options_;
    if (rank() > 0) options.on_progress = {};
    options.kv_cache_bytes = share_of_cache(options, heads_of_keys(here), heads);
    CHORAL_RETURN_IF_ERROR(
        self_.worker_->plan(here, options, by_device && rank() > 0 ? DraftMemory() : draft).while_(files_.path));
    if (by_device) CHORAL_RETURN_IF_ERROR(check_cache(*self_.worker_, options_));
    const MemoryPlan& memory = self_.worker_->memory();
    CHORAL_RETURN_IF_ERROR(check_places(*self_.worker_, options_, memory.kv));
    own = {memory.kv.groups.parts, memory.kv.groups.windows, memory.room()};
    own.memory.adapter_bytes /= count;  // every rank has all of them
    return {};
  }

  Status take_room(const std::vector<Room>& rooms) {
    MemoryPlan memory = self_.worker_->memory();
    for (int r = 0; r < ranks(); ++r) {
      const Room& room = rooms[static_cast<size_t>(r)];
      if (room.parts != rooms.front().parts || room.windows != rooms.front().windows) return unlike_places(options_);
      memory.limit_to(room.memory);
    }
    self_.worker_->take_plan(memory);
    return {};
  }

  Status pack(Loaded& own) {
    Worker& worker = *self_.worker_;
    CHORAL_RETURN_IF_ERROR(worker.pack(*weights_, options_).while_(files_.path));
    CHORAL_RETURN_IF_ERROR(worker.initialize_cache(options_));
    if (rank() > 0) worker.leave_answers();
    for (const auto& [name, digest] : weights_->taken()) {
      own.tensors.push_back(name);
      own.digests.push_back(digest);
    }
    own.weight_bytes = worker.loaded().weight_bytes;
    own.kv_bytes = worker.kv_bytes();
    own.threads = worker.pool()->size();
    return {};
  }

  Status describe(const std::vector<Loaded>& loaded) {
    for (int r = 0; r < ranks(); ++r) {
      const auto& [tensors, digests, weight_bytes, kv_bytes, threads] = loaded[static_cast<size_t>(r)];
      for (size_t i = 0; i < tensors.size() && i < digests.size(); ++i) {
        if (weights_->add_taken(tensors[i], digests[i])) continue;
        return invalid_argument("{} has another '{}' in its files of {} than {} has; give every rank the same files",
                                self_.channel_.name_of(r), tensors[i], files_.name, self_.channel_.name_of(rank()));
      }
    }
    CHORAL_RETURN_IF_ERROR(check_untaken(weights_->untaken(), config_, notes_));
    ExecutorFacts& facts = self_.facts_;
    facts = facts_of(*self_.worker_, weights_->digest());
    const std::span<const lora::LoRATarget> own = self_.worker_->loaded().model->lora_targets();
    self_.targets_ = lora::join_targets(std::span(&own, 1));
    facts.lora_targets = self_.targets_;
    facts.weight_bytes = facts.kv_bytes = facts.threads = 0;
    std::string parts;
    for (int r = 0; r < ranks(); ++r) {
      const Loaded& part = loaded[static_cast<size_t>(r)];
      facts.weight_bytes += part.weight_bytes;
      facts.kv_bytes += part.kv_bytes;
      facts.threads += part.threads;
      parts += fmt::format("{}{} with {} thread{}", parts.empty() ? "" : ", ", self_.channel_.name_of(r), part.threads,
                           part.threads == 1 ? "" : "s");
    }
    facts.notes.push_back(
        fmt::format("tensor parallel: {} processes: {}; threads and weights above are those of the first", ranks(), parts));
    facts.notes.insert(facts.notes.end(), notes_.begin(), notes_.end());
    return {};
  }

  ProcessRank& self_;
  EngineOptions& options_;
  const ModelFiles& files_;
  std::vector<std::string> hosts_;
  ThreadPlan threads_;
  std::unique_ptr<CheckpointWeights> weights_;
  io::ConfigMap config_;
  std::vector<std::string> notes_;
};

Result<std::unique_ptr<ProcessRank>> ProcessRank::load(EngineOptions& options, const ModelFiles& files,
                                                       const DraftMemory& draft) {
  settle_kv_dtype(files, options);
  std::unique_ptr<ProcessRank> made(new ProcessRank(options));
  CHORAL_RETURN_IF_ERROR(Loading(*made, options, files).run(draft));
  return made;
}

Status ProcessRank::execute_model(const StepInput& input, StepOutput& out) {
  CHORAL_RETURN_IF_ERROR(channel_.lost());
  collective_.begin_step();
  const Status own = worker_->execute_model(input, out);
  if (collective_.end_step(own.ok())) return {};
  CHORAL_RETURN_IF_ERROR(channel_.lost());
  if (channel_.rank() > 0) {
    CHORAL_RETURN_IF_ERROR(channel_.send(0, RankTag::kReply, to_bytes(own)));
    return own;
  }
  // Every rank has given up, and says why it did: one of them had a reason of its own.
  const Status others = hear(/*late=*/false);
  CHORAL_RETURN_IF_ERROR(own);
  return others.ok() ? internal_error("a step was given up for no reason") : others;
}

Status ProcessRank::hear(bool late) {
  Status first;
  for (int r = 1; r < channel_.ranks(); ++r) {
    CHORAL_RETURN_IF_ERROR(late ? channel_.receive_late(r, RankTag::kReply, heard_)
                                : channel_.receive(r, RankTag::kReply, heard_));
    Status there;
    if (!from_bytes(heard_, there)) return channel_.lose(r, "sent an answer that can't be read");
    if (first.ok() && !there.ok()) first = std::move(there).while_(channel_.name_of(r));
  }
  return first;
}

}  // namespace choral::engine
