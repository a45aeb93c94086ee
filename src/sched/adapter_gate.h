// What the scheduler asks about adapters before it admits a request: are their weights in memory, and may they be kept there? The
// scheduler knows requests and answers, nothing of weights or files. Engine thread only; no call blocks.
// Four rules keep every request from starving and two mixes from waiting for each other. AdapterMemory (adapter_memory.h) keeps
// them, for the engine and for the tests' simulation alike.
//  1. Answers change between two rounds, not within one, except by the calls themselves. A round begins with a schedule(); the
//     engine thread takes finished loads in before it.
//  2. All or nothing. The adapters of a key are claimed together or not at all: kLoading is said only when each of them is in
//     memory or has its room reserved. A request that waits with all its adapters in memory has a claim on them, so that they
//     need not be loaded again. A claim ends when a request of the key takes the adapters, when no request waits with the key any
//     more, when the load of one fails, or by rule 4. It waits for loads alone, never for another request.
//  3. An adapter that is not held, claimed or pinned is dropped when another needs the room. One that is being loaded is not.
//  4. The scheduler asks in its own order. Where there is no other room, the request that is asked takes the claims of those that
//     were not asked in this round: they come later. Ahead of its turn a key is only given free room, for which nothing is
//     dropped.
// A device may have less room than the host. There holders, and what comes to it now, are in the way, and nothing is claimed. A
// key that comes to the device is kLoading, for which no other request has to end, and keeps its claim on the host meanwhile. So
// kNoRoom means that holders, loads or claims of earlier requests are in the way. What could never fit beside the pins, a mix as
// a whole, is kFailed.
// Why it is enough. Say that nothing runs, and nothing is being loaded or comes to a device. Then only pins and holders are in
// the way of the request that is asked first. A holder that waits was preempted, and asks for nothing but blocks. Without such a
// holder the request is given what it asks for, or a load is under way, or it is kFailed. So every schedule() runs, loads or ends
// something. And no request starves: when the scheduler lets no other take or share adapters before a request, what is in the way
// of that request only ends.
#pragma once

#include <cstdint>

#include "sched/request.h"

namespace choral::sched {

enum class Residency : uint8_t {
  kResident,  // held for this request until release()
  kLoading,   // on their way, all of them, or asked for now: asked again in a later step
  kNoRoom,    // memory is taken for other live requests: it comes when they finish
  kFailed,    // never: the request ends with kError and adapter_failed
};

class AdapterGate {
 public:
  virtual ~AdapterGate() = default;
  virtual void begin_round() = 0;
  // Asked when `request` (adapter_key != kBaseKey) could otherwise be admitted now, in the order in which requests are to be
  // admitted. kLoading and kNoRoom stand for all requests of this adapter key until the next step; after kResident this request
  // never asks again.
  virtual Residency acquire(Request& request) = 0;
  // Asked after them, in that order too, for those who could not be admitted for other reasons: its adapters may come while it
  // waits. False: there is no free room for it, so nobody after it is asked.
  virtual bool prefetch(Request& request) = 0;
  // The request ended: called exactly once for each that acquire() said kResident to, and for no other.
  virtual void release(Request& request) = 0;
};

}  // namespace choral::sched
