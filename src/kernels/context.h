// What every kernel call is given besides its data: who works, at which CPU level, and where scratch comes from.
// One per engine thread, made once; kernels keep no state of their own.
#pragma once

#include "base/arena.h"
#include "base/cpu_level.h"
#include "base/thread_pool.h"

namespace choral::kernels {

struct Context {
  ThreadPool& pool;
  CpuLevel level;
  Arena& scratch;  // kernels take an Arena::Mark, so scratch is given back when they return
};

}  // namespace choral::kernels
