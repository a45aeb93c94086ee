// The rules of adapter_residency.h, over ids and bytes: which adapters are in memory, which come next, and for whom room is kept.
// It reads no file: the engine loads and drops weights as it says, the simulation of the tests counts steps, so both decide
// alike. Requests wait by their key, whose adapters they want all together (one, or those of a mix). A *claim* is all of them in
// memory or with their room reserved, kept from everybody else until a request of the key takes it, or none waits any more.
// Engine thread only. When everything is in memory, nothing allocates.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "lora/store/lora_memory_manager.h"
#include "sched/adapter_residency.h"

namespace choral::sched {

class AdapterMemory {
 public:
  explicit AdapterMemory(int64_t budget_bytes);

  // An adapter and its size; it is on disk.
  void add(int32_t adapter, int64_t size_bytes);
  // Forgets it, its pin included. No request has it, and it is not being loaded.
  void remove(int32_t adapter);

  // --- a request ---
  // It waits for `adapters` (known, each once). All requests of one key name the same ones. Until leave(), or acquire() says
  // kResident and then until release().
  void join(int32_t key, std::span<const int32_t> adapters);
  void leave(int32_t key);
  // Claims ahead of its turn what is missing, if there is room and no promoted request waits for some.
  void prefetch(int32_t key);
  // As AdapterResidency::acquire(). kFailed: its adapters need more than usable_bytes().
  Residency acquire(int32_t key, bool promoted);
  void release(int32_t key);

  // --- its weights ---
  // They have come, asked for or not. False: nobody asked, and there is no room for them.
  bool arrive(int32_t adapter);
  // The load that was asked for gave nothing. Nothing happens when they have come meanwhile.
  void fail(int32_t adapter);
  // What the calls above decided since it was asked last, appended: adapters to load, and adapters whose weights are dropped.
  void take_decisions(std::vector<int32_t>& loads, std::vector<int32_t>& drops);

  Status pin(int32_t adapter) { return tiers_.pin(adapter); }
  void unpin(int32_t adapter) { tiers_.unpin(adapter); }

  bool loading(int32_t adapter) const { return adapters_.at(adapter).state == State::kLoading; }
  bool resident(int32_t adapter) const { return adapters_.at(adapter).state == State::kResident; }
  int32_t holders(int32_t adapter) const { return adapters_.at(adapter).holders; }
  bool idle() const { return voices_.empty(); }  // no request waits or holds
  // What the adapters of `key` need together, and what of the budget is not pinned for others.
  int64_t needed_bytes(int32_t key) const;
  int64_t usable_bytes(int32_t key) const;
  // Bytes in memory or reserved, pins, the budget.
  const lora::LoRAMemoryManager& tiers() const { return tiers_; }

 private:
  enum class State : uint8_t { kOnDisk, kLoading, kResident };
  struct Adapter {
    int64_t size_bytes = 0;
    State state = State::kOnDisk;  // kLoading: its room is reserved, and in use by the load
    int32_t holders = 0;
  };
  struct Voice {
    std::vector<int32_t> adapters;
    int32_t waiting = 0;
    int32_t holders = 0;
    bool claimed = false;
  };
  bool complete(const Voice& voice) const;
  bool claim(Voice& voice);
  void give_up_claim(Voice& voice);
  void drop(const lora::MemoryAnswer& answer);
  void forget_if_empty(int32_t key);

  lora::LoRAMemoryManager tiers_;
  std::map<int32_t, Adapter> adapters_;
  std::map<int32_t, Voice> voices_;  // by key; in order, so that equal runs drop the same ones
  std::vector<int32_t> loads_;
  std::vector<int32_t> drops_;
  int32_t starved_key_ = 0;  // of the promoted request that waits for room; 0 = none does
};

}  // namespace choral::sched
