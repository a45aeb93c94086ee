// Adapters of the first rank, as a rank of another process has them: read and packed from its own machine's files by a thread
// beside the steps. The rank's own thread asks.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/thread_pool.h"
#include "engine/executor.h"
#include "engine/ranks/rank_commands.h"
#include "lora/store/packed_adapter_loader.h"
#include "platform/session.h"

namespace choral::engine {

class FarAdapters {
 public:
  // `facts` and what `options` name outlive this.
  static Result<std::unique_ptr<FarAdapters>> make(const ExecutorFacts& facts, lora::LoRALoadOptions options);
  ~FarAdapters();

  // Whether all adapters of the voice are there, or cannot be had; the others are read from now on.
  bool prepare(const FarVoice& voice);
  // The voice, once it is read. An error is forgotten: its files are read again when they are asked for again.
  Result<lora::PackedVoice> voice_of(const FarVoice& voice);

 private:
  struct Entry {
    FarTerm term;
    std::optional<Result<std::shared_ptr<const lora::PackedAdapter>>> adapter = {};  // none: it is not read yet
  };

  FarAdapters(const ExecutorFacts& facts, lora::LoRALoadOptions options) : facts_(facts), options_(std::move(options)) {}
  Status start();
  void run();
  Result<std::shared_ptr<const lora::PackedAdapter>> read(const FarTerm& term);
  // With mutex_ held.
  std::list<Entry>::iterator entry_of(const FarTerm& term);
  void forget_unused();

  const ExecutorFacts& facts_;
  const lora::LoRALoadOptions options_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<platform::Session> session_;
  std::unique_ptr<platform::Context> ctx_;
  std::unique_ptr<lora::PackedAdapterLoader> loader_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::list<Entry> entries_;  // the last used at the end; one that is not read stays
  std::thread thread_;
};

}  // namespace choral::engine
