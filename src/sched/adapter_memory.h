// The rules of adapter_gate.h, over ids, bytes and numbers: which adapters are in memory, which come next, for whom room is kept.
// It reads no file. The engine loads and drops weights as it says, and the tests' simulation counts steps, so both decide alike.
// Requests with equal adapters and factors share a *voice*: they wait for its adapters together. A *claim* is all of these in
// memory or with their room reserved, kept until a request of the voice takes it or none waits any more. Only a request that is
// asked for earlier takes it away. No call costs by the number of known adapters. Engine thread only. When everything is in
// memory, nothing allocates.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "lora/store/lora_memory_manager.h"
#include "sched/adapter_gate.h"

namespace choral::sched {

// An adapter of a voice. Its factor only tells voices apart here.
struct VoiceTerm {
  AdapterId adapter;
  float factor = 1.0F;
  auto operator<=>(const VoiceTerm&) const = default;
};

// What live requests with equal terms have in common. It stays in place until each of them left or released it.
struct Voice {
  AdapterKey key;                   // by which their rows are grouped; used again when nobody has it
  std::vector<VoiceTerm> terms;     // as named: an adapter may be in several
  std::vector<AdapterId> adapters;  // each once
  int32_t waiting = 0;              // requests
  int32_t holders = 0;

  // AdapterMemory's own.
  bool claimed = false;
  uint64_t round = 0;  // in which it was asked for last
  uint64_t place = 0;  // among those asked for then
};

class AdapterMemory {
 public:
  explicit AdapterMemory(int64_t budget_bytes, int64_t most_adapters = lora::kAnyNumber);

  // An adapter and its size; it is on disk.
  void add(AdapterId adapter, int64_t size_bytes) { book_.add_adapter(adapter, size_bytes); }
  // Forgets it, its pin included. No request has it, and it is not being loaded.
  void remove(AdapterId adapter) { book_.remove_adapter(adapter); }

  // --- a request ---
  // It waits for the adapters of `terms` (known, one at least), until leave(), or acquire() says kResident and then until
  // release().
  Voice& join(std::vector<VoiceTerm> terms);
  void leave(Voice& voice);
  // These as AdapterGate's. kFailed: its adapters need more than usable().
  void begin_round() { ++round_, asked_ = 0; }
  Residency acquire(Voice& voice);
  bool prefetch(Voice& voice);
  void release(Voice& voice);
  // What acquire() gave cannot be used now, on the device: the request waits on.
  void hand_back(Voice& voice);

  // --- its weights ---
  // They have come, asked for or not. False: they were not asked for, and there is no room for them.
  bool arrive(AdapterId adapter);
  // The load that was asked for gave nothing. Nothing happens when they have come meanwhile.
  void fail(AdapterId adapter);
  // What the calls above decided since it was asked last, appended: adapters to load, and adapters whose weights are dropped.
  void take_decisions(std::vector<AdapterId>& loads, std::vector<AdapterId>& drops);

  // False: more than may be would be pinned.
  bool pin(AdapterId adapter) { return book_.pin(adapter); }
  void unpin(AdapterId adapter) { book_.unpin(adapter); }

  bool loading(AdapterId adapter) const { return book_.at(adapter).loading(); }
  bool resident(AdapterId adapter) const { return book_.at(adapter).resident(); }
  size_t voice_count() const { return voices_.size(); }
  // What the adapters of a voice need together, and what of the budget is not pinned for others.
  lora::MemoryAmount needed(const Voice& voice) const;
  lora::MemoryAmount usable(const Voice& voice) const;
  // What has room or keeps it, pins, the budget.
  const lora::LoRAMemoryManager& book() const { return book_; }

 private:
  bool complete(const Voice& voice) const;
  lora::MemoryAmount missing(const Voice& voice) const;
  bool claim(Voice& voice);
  bool claim_before_others(Voice& voice);
  void keep(Voice& voice);
  void give_up_claim(Voice& voice);
  void set_claimed(Voice& voice, bool claimed);
  void drop(const lora::MemoryAnswer& answer);
  void forget_if_empty(const Voice& voice);

  lora::LoRAMemoryManager book_;
  std::map<std::vector<VoiceTerm>, Voice> voices_;  // in order, so that equal runs drop the same ones
  std::vector<AdapterKey> free_keys_;               // every request may bring another factor, and keys are not without end
  int32_t next_key_ = 1;
  std::vector<AdapterId> loads_;
  std::vector<AdapterId> drops_;
  uint64_t round_ = 1;
  uint64_t asked_ = 0;          // voices, in this round
  std::vector<Voice*> claims_;  // that are claimed
  std::vector<Voice*> later_;   // claim_before_others()'s own
};

}  // namespace choral::sched
