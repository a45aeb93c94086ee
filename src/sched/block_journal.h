// Hears which blocks of the KV cache others can find and which they cannot any more: what a router outside wants to know. Engine
// thread only, in the middle of the scheduler's work, so nothing is thrown.
#pragma once

#include "cache/kv_cache_manager.h"
#include "sched/request.h"

namespace choral::sched {

class BlockJournal : public cache::EvictionListener {
 public:
  // Of the request's tokens those at `position`, counted in blocks, as a group of layers keeps them.
  virtual void stored(const Request& request, int32_t group, int32_t position, cache::BlockId block) noexcept = 0;
};

}  // namespace choral::sched
