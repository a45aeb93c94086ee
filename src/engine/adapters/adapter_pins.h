// Pins: which versions of adapters stay in memory, and callers' requests for pins that wait for a load. A version knows whether
// it is pinned. Its content is pinned in AdapterMemory while one of its versions is. Engine thread only.
#pragma once

#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "engine/adapters/adapter_contents.h"
#include "engine/adapters/adapter_registry.h"
#include "sched/adapter_memory.h"

namespace choral::engine {

class AdapterPins {
 public:
  using Wish = AdapterRegistry::PinWish;
  // `memory` outlives this.
  explicit AdapterPins(sched::AdapterMemory& memory) : memory_(memory) {}

  // Wishes that came: the registry appends them.
  std::vector<Wish>& wishes() { return wishes_; }
  // Answers what can be answered, in the order in which it came, and asks for loads that the others need. The rest waits for the
  // next call: after a load, or when something came.
  using Load = FunctionRef<void(const std::shared_ptr<AdapterVersion>&)>;
  using Answer = FunctionRef<void(const Wish&, const Status&)>;
  void settle(Load load, Answer answer);
  // A pin may have been granted to a name that had gone, or gone with its name.
  void review(const AdapterContent& content);

 private:
  bool settle_one(Wish& wish, Load load, Answer answer);
  Status pin(AdapterVersion& version);
  void unpin(AdapterVersion& version);
  Status room_for(const AdapterVersion& version) const;
  const lora::LoRAMemoryManager& book() const { return memory_.book(); }

  sched::AdapterMemory& memory_;
  std::vector<Wish> wishes_;
};

}  // namespace choral::engine
