// All adapters of an engine by name, and the loaders that read, check and pack their files beside the engine's loop: two threads,
// since DoRA takes the time to read every weight that it adapts, and other adapters need not wait for that.
// What is packed is handed to the engine thread, which alone decides what stays in memory (adapter_residency.h). Thread-safe; no
// call but load() and pin() waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "engine/adapter_version.h"
#include "lora/lora_config.h"
#include "lora/packed_adapter.h"
#include "platform/session.h"

namespace choral::engine {

// What the loader made of a version's files.
struct LoadedAdapter {
  std::shared_ptr<AdapterVersion> version;
  Result<std::shared_ptr<const lora::PackedAdapter>> packed;
};

class AdapterRegistry {
 public:
  struct Config {
    lora::LoRALoadOptions load;  // its config, and what is known of the model
    std::string root;            // where names that nobody gave are looked for; empty: nowhere
    int64_t budget_bytes = 0;    // for packed adapters, AdapterResidency's; 0: no limit
  };
  // The loader has threads and scratch of its own, and packs at `level`. `targets` outlive this.
  static Result<std::shared_ptr<AdapterRegistry>> make(CpuLevel level, std::span<const lora::LoRATarget> targets, Config config);
  ~AdapterRegistry();

  // --- callers ---
  // Reads, checks and packs the files, pins them if the spec says so, then puts them under the name. A name that exists is
  // replaced, or already_exists. A name whose load or pin fails keeps what it had.
  Status load(const AdapterSpec& spec, bool replace);
  Status unload(std::string_view name);
  // Waits for the engine thread, which may have to load it; says why it cannot stay in memory.
  Status pin(std::string_view name, bool pinned);
  std::vector<AdapterInfo> list() const;  // sorted by name
  // The present version of each name. Unknown names are errors that tell the nearest.
  Result<std::vector<VersionUse>> resolve(std::span<const AdapterUse> uses);

  // --- the engine thread ---
  // Called, from any thread, when take_loaded() or take_pins() has something new. Empty: the engine ends, and nobody waits for
  // it any more.
  void set_wake(std::function<void()> wake);
  // Asks for the files again (or for the first time); the answer comes by take_loaded().
  void request_load(std::shared_ptr<AdapterVersion> version);
  void take_loaded(std::vector<LoadedAdapter>& out);  // appends
  // What a caller waits for.
  struct Answer {
    Status status;
    bool given = false;
  };
  // To keep a version in memory, or no longer; each is answered once.
  struct PinWish {
    std::shared_ptr<AdapterVersion> version;
    bool pinned = false;
    Answer* answer = nullptr;  // null: nobody waits
    bool tried = false;        // the engine's: a load was waited for
  };
  void take_pins(std::vector<PinWish>& out);  // appends
  void answer_pin(const PinWish& wish, const Status& status);
  template <class Change>
  void update(AdapterVersion& version, Change change) {
    const std::lock_guard lock(mutex_);
    change(version.info);
  }
  // Grows when a name lost a version, by unload() or replacement: its content may be nobody's now.
  uint64_t retirements() const { return retirements_.load(std::memory_order_relaxed); }
  // The content of a name of the root turned bad or changed: the next request looks at the files anew.
  void forget(const AdapterVersion& version);

 private:
  struct Job {
    std::shared_ptr<AdapterVersion> version;
    Answer* answer = nullptr;  // of a waiting load(); null: the engine asked
  };
  // A thread that loads, and what it needs.
  struct Loader {
    std::deque<Job> jobs;
    std::condition_variable work;  // there is one
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<platform::Session> session;
    std::thread thread;
  };
  AdapterRegistry(CpuLevel level, std::span<const lora::LoRATarget> targets, Config config)
      : level_(level), targets_(targets), config_(std::move(config)) {}
  Status start(Loader& loader);
  void run(Loader& loader);
  // Waits until the engine thread took so much of what is packed that `bytes` more are not too many.
  Status wait_for_handover(int64_t bytes);
  // These take the lock themselves, and look at files without it: the engine thread waits for it too.
  Result<std::shared_ptr<AdapterVersion>> find_or_discover(std::string_view name);
  Status unknown_name(std::string_view name) const;
  void retire(std::shared_ptr<AdapterVersion> version);
  Status wait_for_pin(std::unique_lock<std::mutex>& lock, std::shared_ptr<AdapterVersion> version, bool pinned);
  void give(Answer& answer, Status status);  // under the lock

  CpuLevel level_;
  std::span<const lora::LoRATarget> targets_;
  Config config_;

  mutable std::mutex mutex_;
  std::condition_variable taken_;     // loaded_ is empty, or nobody takes it
  std::condition_variable answered_;  // a load() or pin() is done
  std::function<void()> wake_;
  std::map<std::string, std::shared_ptr<AdapterVersion>, std::less<>> names_;
  std::map<std::string, int, std::less<>> generations_;  // the last one of each name
  std::vector<LoadedAdapter> loaded_;
  int64_t loaded_bytes_ = 0;  // of the packed ones among them
  std::vector<PinWish> pins_;
  std::atomic<uint64_t> retirements_{0};
  int32_t next_id_ = 1;
  bool stop_ = false;
  Loader loader_, dora_loader_;  // what turns out to be DoRA in the first goes to the second
};

}  // namespace choral::engine
