// The threads that read, check and pack adapters' files beside the engine's loop. There are two, each with its queue: DoRA takes
// the time to read every weight that it adapts, and other adapters need not wait for that. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "engine/adapters/adapter_version.h"
#include "engine/adapters/file_facts.h"
#include "engine/spare_memory.h"
#include "lora/store/packed_adapter_loader.h"
#include "platform/session.h"

namespace choral::engine {

// What was made of a version's files.
struct AdapterRead {
  Result<std::shared_ptr<const lora::PackedAdapter>> packed;
  lora::AdapterDescription described;
  std::shared_ptr<const OwnTokenizer> own;  // of what was packed
  AdapterFacts facts;                       // when it began
  bool whole = false;                       // and they were the same in the end
  double seconds = 0;                       // that it took, from the first read of files that changed
};

class AdapterLoader {
 public:
  // What a caller waits for.
  struct Answer {
    Status status;
    bool given = false;
  };
  struct Job {
    std::shared_ptr<AdapterVersion> version;
    Answer* answer = nullptr;  // of a waiting load; null: the engine asked
  };
  // Whom it works for. Called by the loader's threads.
  class Client {
   public:
    virtual ~Client() = default;
    // Waits until what takes `packed_bytes` may be packed.
    virtual Status admit(int64_t packed_bytes) = 0;
    // False: the files changed meanwhile and are to be read again, unless this was the last time.
    virtual bool take_read(Job& job, AdapterRead read, bool last) = 0;
  };
  struct Config {
    CpuLevel level;
    std::span<const lora::LoRATarget> targets;
    lora::LoRALoadOptions options;
    std::shared_ptr<const text::Tokenizer> tokenizer;  // the base's
    int64_t budget_bytes = 0;                          // what an adapter may take when it is packed; 0: no limit
  };
  // `client` and the targets outlive this.
  static Result<std::unique_ptr<AdapterLoader>> make(Client& client, Config config);
  ~AdapterLoader() { stop(); }

  void add(Job job);
  size_t queued() const;
  // Waits for the jobs in hand, and gives back what was not begun. Nothing is added any more.
  std::vector<Job> stop();

 private:
  struct Worker {
    std::deque<Job> jobs;
    std::condition_variable work;  // there is one
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<platform::Session> session;
    std::unique_ptr<platform::Context> ctx;
    std::unique_ptr<lora::PackedAdapterLoader> files;
    SpareMemory spare;
    std::thread thread;
  };
  AdapterLoader(Client& client, Config config) : client_(client), config_(std::move(config)) {}
  Status start(Worker& worker);
  void run(Worker& worker);
  void load(Worker& worker, Job& job);
  AdapterRead read(Worker& worker, const AdapterVersion& version);

  Client& client_;
  Config config_;
  mutable std::mutex mutex_;
  bool stop_ = false;
  Worker any_, dora_;  // what turns out to be DoRA in the first's queue goes to the second's
};

}  // namespace choral::engine
