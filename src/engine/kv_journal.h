// Turns what the scheduler says of blocks into the events of a step, and keeps them until somebody reads them. The engine never
// waits for the reader: batches that nobody took in time are lost, the oldest first, and their numbers are missing then. The
// engine's thread writes, any other one reads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "cache/kv_groups.h"
#include "choral/kv_events.h"
#include "sched/block_journal.h"

namespace choral::engine {

class KvJournal : public sched::BlockJournal {
 public:
  // So many batches wait to be read, at most.
  KvJournal(const cache::KvPoolShape& pool, size_t most_batches);

  // --- the engine's thread ---
  // The request is an EngineRequest.
  void stored(const sched::Request& request, int32_t group, int32_t position, cache::BlockId block) noexcept override;
  void evicted(cache::BlockId block) noexcept override;
  // What came since the last call is a batch, if anything did.
  void end_batch() noexcept;

  // --- any thread ---
  // The next batch, waiting for at most `limit`; false: none came.
  bool next(KvEventBatch& batch, std::chrono::milliseconds limit);

 private:
  struct Named {
    uint64_t name = 0;
    int32_t group = 0;
  };
  void add(const sched::Request& request, int32_t group, int32_t position, uint64_t name);

  const int32_t block_tokens_;
  const std::vector<int32_t> windows_;
  const size_t most_batches_;
  std::vector<Named> names_;  // by block
  KvEventBatch batch_;        // being made
  bool has_lost_ = false;     // events of it
  // Where the last event goes on, if the next block is this request's at this position.
  const sched::Request* last_request_ = nullptr;
  int32_t last_position_ = 0;

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<KvEventBatch> waiting_;
};

}  // namespace choral::engine
