#include "engine/adapters/adapter_loader.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/thread.h"

namespace choral::engine {
namespace {

// The engine's threads keep every core busy, so one loader would share one core with one of them, and each step would wait for
// that one. Two share two cores: the load is done in half the time and the step loses no more.
constexpr int kThreads = 2;
constexpr int kMostReads = 3;                           // of files that change while they are read
constexpr auto kQuiet = std::chrono::milliseconds(10);  // without a job: there is time for what the next one needs

// Where the config cannot be read it does not matter: the load says why.
bool is_dora(const lora::AdapterSource& source) {
  const auto config = or_out_of_memory("its config cannot be read", [&] { return source.read_config(); });
  return config.ok() && config->use_dora;
}

}  // namespace

Result<std::unique_ptr<AdapterLoader>> AdapterLoader::make(Client& client, Config config) {
  std::unique_ptr<AdapterLoader> made(new AdapterLoader(client, std::move(config)));
  for (Worker* worker : {&made->any_, &made->dora_}) CHORAL_RETURN_IF_ERROR(made->start(*worker));
  return made;
}

Status AdapterLoader::start(Worker& worker) {
  CHORAL_TRY(worker.pool, ThreadPool::make(std::min(kThreads, ThreadPool::default_size())));
  CHORAL_TRY(worker.session, platform::cpu_platform().open(*worker.pool, {}));
  worker.ctx = std::make_unique<platform::Context>(*worker.session, *worker.pool, config_.level);
  worker.files = std::make_unique<lora::PackedAdapterLoader>(*worker.ctx, config_.targets, config_.options, config_.budget_bytes);
  worker.spare.keep();
  CHORAL_TRY(worker.thread, start_thread("a thread that loads adapters", [this, &worker] { run(worker); }));
  return {};
}

std::vector<AdapterLoader::Job> AdapterLoader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  std::vector<Job> left;
  for (Worker* worker : {&any_, &dora_}) worker->work.notify_all();
  for (Worker* worker : {&any_, &dora_}) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  for (Worker* worker : {&any_, &dora_}) {
    std::move(worker->jobs.begin(), worker->jobs.end(), std::back_inserter(left));
    worker->jobs.clear();
  }
  return left;
}

void AdapterLoader::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    any_.jobs.push_back(std::move(job));
  }
  any_.work.notify_one();
}

size_t AdapterLoader::queued() const {
  const std::lock_guard lock(mutex_);
  return any_.jobs.size() + dora_.jobs.size();
}

void AdapterLoader::run(Worker& worker) {
  const SpareMemory::Use use(&worker.spare);
  std::unique_lock lock(mutex_);
  for (;; worker.spare.keep()) {
    const auto is_called = [&] { return stop_ || !worker.jobs.empty(); };
    if (!worker.work.wait_for(lock, kQuiet, is_called)) {
      lock.unlock();
      // Where there is no memory now, the next job may have it, or says so.
      (void)or_out_of_memory("memory cannot be made ready", [&] { return worker.files->prepare_next(); });
      lock.lock();
      worker.work.wait(lock, is_called);
    }
    if (stop_) return;
    Job job = std::move(worker.jobs.front());
    worker.jobs.pop_front();
    lock.unlock();
    if (&worker == &any_ && is_dora(job.version->source)) {
      lock.lock();
      dora_.jobs.push_back(std::move(job));
      dora_.work.notify_one();
      continue;
    }
    load(worker, job);
    lock.lock();
  }
}

// The job is the client's once it is taken: nothing of its version may be held here then, or the engine finds it in use.
void AdapterLoader::load(Worker& worker, Job& job) {
  const double begun = now_s();
  for (int reads = 1;; ++reads) {
    AdapterRead made = read(worker, *job.version);
    made.seconds = now_s() - begun;
    if (client_.take_read(job, std::move(made), reads == kMostReads)) return;
  }
}

AdapterRead AdapterLoader::read(Worker& worker, const AdapterVersion& version) {
  const lora::AdapterSource& source = version.source;
  AdapterFacts facts;
  lora::AdapterDescription described;
  std::shared_ptr<const OwnTokenizer> own;
  bool whole = true;  // memory that cannot be had is no fault of the files
  auto packed = or_out_of_memory("it cannot be loaded", [&]() -> Result<std::shared_ptr<const lora::PackedAdapter>> {
    worker.ctx->memory.reset();
    facts = look_at_adapter(source.path());
    wait_until_stamps_settle(facts);
    auto loaded = worker.files->load(source, described, [this](int64_t bytes) { return client_.admit(bytes); });
    if (loaded.ok()) {
      CHORAL_TRY(own, read_own_tokenizer(source, {config_.tokenizer, config_.targets, config_.options}));
      described.notes.insert(described.notes.end(), own->notes.begin(), own->notes.end());
    }
    whole = look_at_adapter(source.path()) == facts;
    return loaded;
  });
  packed = std::move(packed).while_(fmt::format("adapter '{}' ({})", version.request.lora_name, source.text()));
  return {std::move(packed), std::move(described), std::move(own), std::move(facts), whole};
}

}  // namespace choral::engine
