// The voices that the steps of one model on one device may use, and the plan of the step. A voice is one adapter, or a mix of
// several with factors, packed and known by a key. On the host any voice can be in the next step. A device with memory of its own
// gives slots to those that run (stacked_adapters.h).
// Engine thread only. Registering may allocate; planning a step does not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lora/adapter_ids.h"
#include "lora/plan/lora_segment.h"
#include "lora/plan/punica_wrapper.h"
#include "lora/readiness.h"
#include "lora/store/packed_adapter.h"

namespace choral::lora {

class LoRAModelManager {
 public:
  explicit LoRAModelManager(int64_t max_num_seqs, bool fully_sharded = false);

  // Registers, or begins to: a voice that is coming is not registered, and asked for again after take_uploaded(). already_exists
  // for a key in use; invalid_argument for a key below 1, a mix of more than kMaxVoiceTerms, or one that replaces weights and is
  // not alone at factor 1; unavailable while others have the device's slots.
  Result<Readiness> add_adapter(AdapterKey key, PackedVoice voice);
  // On a device its slot is free for others, and kept for it until they need it. False when there is none.
  bool remove_adapter(AdapterKey key);
  const PackedVoice* get_adapter(AdapterKey key) const;  // null: not registered

  // Adapters of a step are the device's from now on, as far as it holds them.
  void use_device(std::unique_ptr<StackedAdapters> adapters);
  // As StackedAdapters has them.
  void take_uploaded();
  void set_wake(std::function<void()> wake);
  // Why adapters are computed on the host of a device that serves others; since the last call.
  std::vector<std::string> take_notes();
  // A step begins whose rows these are: makes the plan. not_found for an unknown key, and then there is no plan.
  Status set_adapter_mapping(std::span<const LoRASegment> segments, StepRows rows = {});
  const PunicaWrapper& punica_wrapper() const { return punica_wrapper_; }

 private:
  PunicaWrapper punica_wrapper_;
  std::unique_ptr<StackedAdapters> device_adapters_;  // null: this device has none of its own
  std::unordered_map<AdapterKey, PackedVoice> registered_;
  std::vector<const PackedVoice*> segment_voices_;  // of the step
};

}  // namespace choral::lora
