// What the scheduler asks about adapters before it admits a request: are their weights in memory, and may they be kept there?
// The scheduler knows requests and answers, nothing of weights or files. Engine thread only; no call blocks.
// For nobody to starve, and for two mixes never to wait for each other, four rules; AdapterMemory (adapter_memory.h) keeps them
// for the engine and for the simulation of the tests alike.
//  1. Answers change between two schedule() calls, not within one but for what the calls themselves do: the engine thread takes
//     finished loads in before it schedules.
//  2. All or nothing. The adapters of a key are claimed together or not at all: kLoading is said only when each of them is in
//     memory or has its room reserved, and from then on none of them leaves until a request of the key takes them, nobody waits
//     with the key any more, the load of one fails, or by rule 4. A claim waits for loads alone, never for another request.
//  3. What nobody holds, claims or pins is dropped when another needs the room. What is being loaded is not.
//  4. A request with `promoted` takes the claims of the others away. While it waits for room, nobody else is given any: only
//     requests that hold already are admitted, and nothing is claimed ahead of its turn.
// A device may have less room than the host: there, holders and what comes to it now are in the way, and nothing is claimed. A
// key that comes to the device is kLoading, which no other request has to end for, and has its claim on the host meanwhile. So
// kNoRoom means that holders, claims or loads are in the way; what could never fit beside the pins, a mix as a whole, is kFailed.
// Why it is enough. Say that nothing runs and nothing is being loaded or comes to a device. By rule 2 each claim is then
// complete, and by its definition somebody waits with its key: asked, it gets kResident, or comes to the device. Without claims
// only pins and holders are in the way: a holder that waits was preempted, and asks for nothing but blocks; without such, whoever
// is asked first claims (a load is under way) or is kFailed. So every schedule() runs, loads or ends something. And nobody
// starves: by rule 4 what is in the way of the promoted request only ends, and then it is the one that claims; each promoted one
// ends, and the longest waiting is promoted next.
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
  // Asked when `request` (adapter_key != kBaseKey) could otherwise be admitted now, the promoted request first. kLoading and
  // kNoRoom stand for all requests of this adapter key until the next step; after kResident this request never asks again.
  virtual Residency acquire(Request& request) = 0;
  // The request ended: called exactly once for each that acquire() said kResident to, and for no other.
  virtual void release(Request& request) = 0;
};

}  // namespace choral::sched
