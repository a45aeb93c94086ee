// What the scheduler asks about adapters before it admits a request: are their weights in memory, and may they be kept there?
// The scheduler knows requests and answers, nothing of weights or files. Engine thread only; no call blocks or allocates.
#pragma once

#include <cstdint>

#include "sched/request.h"

namespace choral::sched {

enum class Residency : uint8_t {
  kResident,  // held for this request until release()
  kLoading,   // on its way, or asked for now: ask again in a later step
  kNoRoom,    // memory is taken by adapters of running requests: it comes when they finish
  kFailed,    // never: the engine ends the request with the reason
};

class AdapterResidency {
 public:
  virtual ~AdapterResidency() = default;
  // Asked when `request` could be admitted now. kResident takes a hold; a request that holds already gets kResident again.
  virtual Residency acquire(Request& request) = 0;
  // The request ended; called once for each that acquire() said kResident to.
  virtual void release(Request& request) = 0;
};

}  // namespace choral::sched
