// What the scheduler asks about adapters before it admits a request: are their weights in memory, and may they be kept there?
// The scheduler knows requests and answers, nothing of weights or files. Engine thread only; no call blocks.
// For nobody to starve, and for two mixes never to wait for each other, four rules; AdapterMemory (adapter_memory.h) keeps them
// for the engine and for the simulation of the tests alike.
//  1. Answers change between two rounds, which begin with a schedule(), not within one but for what the calls themselves do: the
//     engine thread takes finished loads in before it schedules.
//  2. All or nothing. The adapters of a key are claimed together or not at all: kLoading is said only when each of them is in
//     memory or has its room reserved. Whoever waits with adapters that are all in memory has a claim on them, so that they need
//     not be loaded again. A claim ends when a request of the key takes the adapters, nobody waits with the key any more, the
//     load of one fails, or by rule 4. It waits for loads alone, never for another request.
//  3. What nobody holds, claims or pins is dropped when another needs the room. What is being loaded is not.
//  4. The scheduler asks in its own order, and who is asked takes, where there is no other room, the claims of those who were not
//     asked in this round: they come later. Ahead of its turn a key is only given what is free: nothing is dropped for it.
// A device may have less room than the host: there, holders and what comes to it now are in the way, and nothing is claimed. A
// key that comes to the device is kLoading, which no other request has to end for, and has its claim on the host meanwhile. So
// kNoRoom means that holders, loads or claims of those before it are in the way; what could never fit beside the pins, a mix as a
// whole, is kFailed.
// Why it is enough. Say that nothing runs and nothing is being loaded or comes to a device. Then only pins and holders are in the
// way of whoever is asked first: a holder that waits was preempted, and asks for nothing but blocks; without such, it is given
// what it asks for, or a load is under way, or it is kFailed. So every schedule() runs, loads or ends something. And nobody
// starves: when the scheduler lets nobody else take or share adapters before a request, what is in the way of that one only ends.
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
