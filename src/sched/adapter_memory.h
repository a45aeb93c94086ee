// The rules of adapter_gate.h, over ids, bytes and numbers: which adapters are in memory, which come next, for whom room is kept.
// It reads no file. The engine loads and drops weights as it says, and the tests' simulation counts steps, so both decide alike.
// Requests wait by their key, whose adapters they want all together (one, or those of a mix): their *demand*. A *claim* is all of
// them in memory or with their room reserved, kept until a request of the key takes it or none waits any more. Only a request
// that is asked for earlier takes it away. No call costs by the number of known adapters. Engine thread only. When everything is
// in memory, nothing allocates.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "lora/store/lora_memory_manager.h"
#include "sched/adapter_gate.h"

namespace choral::sched {

class AdapterMemory {
 public:
  explicit AdapterMemory(int64_t budget_bytes, int64_t most_adapters = lora::kAnyNumber);

  // An adapter and its size; it is on disk.
  void add(AdapterId adapter, int64_t size_bytes);
  // Forgets it, its pin included. No request has it, and it is not being loaded.
  void remove(AdapterId adapter);

  // --- a request ---
  // It waits for `adapters` (known, each once). All requests of one key name the same ones. Until leave(), or acquire() says
  // kResident and then until release().
  void join(AdapterKey key, std::span<const AdapterId> adapters);
  void leave(AdapterKey key);
  // These as AdapterGate's. kFailed: its adapters need more than usable().
  void begin_round() { ++round_, asked_ = 0; }
  Residency acquire(AdapterKey key);
  bool prefetch(AdapterKey key);
  void release(AdapterKey key);
  // What acquire() gave cannot be used now, on the device: the request waits on.
  void hand_back(AdapterKey key);

  // --- its weights ---
  // They have come, asked for or not. False: they were not asked for, and there is no room for them.
  bool arrive(AdapterId adapter);
  // The load that was asked for gave nothing. Nothing happens when they have come meanwhile.
  void fail(AdapterId adapter);
  // What the calls above decided since it was asked last, appended: adapters to load, and adapters whose weights are dropped.
  void take_decisions(std::vector<AdapterId>& loads, std::vector<AdapterId>& drops);

  Status pin(AdapterId adapter) { return tiers_.pin(adapter); }
  void unpin(AdapterId adapter) { tiers_.unpin(adapter); }

  int64_t size_bytes(AdapterId adapter) const;
  bool loading(AdapterId adapter) const { return adapters_.at(adapter).loading; }
  bool resident(AdapterId adapter) const { return has_room(adapter) && !loading(adapter); }
  // Requests that hold it, and those that hold with a key.
  int32_t holders(AdapterId adapter) const { return adapters_.at(adapter).holders; }
  int32_t holders(AdapterKey key) const;
  bool idle() const { return demands_.empty(); }  // no request waits or holds
  // What the adapters of `key` need together, and what of the budget is not pinned for others.
  lora::MemoryAmount needed(AdapterKey key) const;
  lora::MemoryAmount usable(AdapterKey key) const;
  // What is in memory or reserved, pins, the budget.
  const lora::LoRAMemoryManager& tiers() const { return tiers_; }

 private:
  // Its size, and whether it has room, are in the record that tiers_ keeps of it.
  struct Adapter {
    bool loading = false;  // its room is in use by the load
    int32_t holders = 0;
  };
  struct Demand {
    std::vector<AdapterId> adapters;
    int32_t waiting = 0;
    int32_t holders = 0;
    bool claimed = false;
    uint64_t round = 0;  // in which it was asked for last
    uint64_t place = 0;  // among those asked for then
  };
  bool has_room(AdapterId adapter) const;
  bool complete(const Demand& demand) const;
  lora::MemoryAmount missing(const Demand& demand) const;
  bool claim(Demand& demand);
  bool claim_before_others(Demand& demand);
  void keep(Demand& demand);
  void give_up_claim(Demand& demand);
  void set_claimed(Demand& demand, bool claimed);
  void drop(const lora::MemoryAnswer& answer);
  void forget_if_empty(AdapterKey key);

  lora::LoRAMemoryManager tiers_;
  std::map<AdapterId, Adapter> adapters_;
  std::map<AdapterKey, Demand> demands_;  // by key; in order, so that equal runs drop the same ones
  std::vector<AdapterId> loads_;
  std::vector<AdapterId> drops_;
  uint64_t round_ = 1;
  uint64_t asked_ = 0;           // keys, in this round
  std::vector<Demand*> claims_;  // that are claimed
  std::vector<Demand*> later_;   // claim_before_others()'s own
};

}  // namespace choral::sched
