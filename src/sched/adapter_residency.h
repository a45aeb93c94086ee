// What the scheduler asks about adapters before it admits a request: are their weights in memory, and may they be kept there?
// The scheduler knows requests and answers, nothing of weights or files. Engine thread only; no call blocks or allocates.
// For nobody to starve, three rules. Answers change between two schedule() calls, not within one (the engine thread takes
// finished loads in before it schedules), and what is being loaded is not dropped for others. What nobody holds is dropped when
// another needs the room; it may be kept for whoever had it loaded and waits, but not against a request with `promoted`: while
// that one waits for room, only requests that hold already are admitted. So kNoRoom means that holders or loads are in the way;
// what could never fit (a mix of several adapters as a whole, too) is kFailed.
#pragma once

#include <cstdint>

#include "sched/request.h"

namespace choral::sched {

enum class Residency : uint8_t {
  kResident,  // held for this request until release()
  kLoading,   // on its way, or asked for now: asked again in a later step
  kNoRoom,    // memory is taken by adapters of live requests: it comes when they finish
  kFailed,    // never: the request ends with kError and adapter_failed
};

class AdapterResidency {
 public:
  virtual ~AdapterResidency() = default;
  // Asked when `request` (adapter_key != 0) could otherwise be admitted now, the promoted request first. kLoading and
  // kNoRoom stand for all requests of this adapter key until the next step; after kResident this request never asks again.
  virtual Residency acquire(Request& request) = 0;
  // The request ended: called exactly once for each that acquire() said kResident to, and for no other.
  virtual void release(Request& request) = 0;
};

}  // namespace choral::sched
