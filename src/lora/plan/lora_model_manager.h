// The adapters of one model on one device. Registered: packed and ready, known by a key. Active: has a slot, as all adapters of a
// step do (slot 0 is the base). A slot costs a pointer, so activating is cheap and any registered adapter can be
// in the next step; when slots are short the one unused longest gives way. A key may also stand for a mix of several adapters.
// Engine thread only. Registering may allocate; activating and planning a step do not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lora/adapter_ids.h"
#include "lora/lora_config.h"
#include "lora/plan/lora_segment.h"
#include "lora/plan/punica_wrapper.h"
#include "lora/store/packed_adapter.h"

namespace choral::lora {

class LoRAModelManager {
 public:
  // `targets` belong to the model and outlive this.
  LoRAModelManager(std::span<const LoRATarget> targets, const LoRAConfig& config, Device device, int64_t max_num_seqs,
                   int64_t max_num_batched_tokens);

  // Registers. already_exists for a key in use; resource_exhausted when max_cpu_loras are registered and none can give way;
  // invalid_argument for a key below 1, a mix of more than kMaxVoiceTerms, or one that replaces weights and is not alone at
  // factor 1.
  Status add_adapter(AdapterKey key, PackedVoice voice);
  // Also gives its slot back. False when there is none.
  bool remove_adapter(AdapterKey key);
  const PackedVoice* get_adapter(AdapterKey key) const;
  std::vector<AdapterKey> list_adapters() const;  // ascending
  size_t adapter_count() const { return registered_.size(); }

  // The slot of a registered adapter, given now if it has none. not_found for an unknown key; resource_exhausted when every slot
  // is pinned or was activated since begin_step().
  Result<int32_t> activate_adapter(AdapterKey key);
  bool deactivate_adapter(AdapterKey key);
  // A pinned adapter keeps its slot.
  Status pin_adapter(AdapterKey key, bool pinned = true);
  // Slot -> key; kBaseKey: free. [0] is the base.
  std::span<const AdapterKey> lora_index_to_id() const { return lora_index_to_id_; }
  size_t capacity() const { return lora_index_to_id_.size() - 1; }

  // What was activated before may give way from now on.
  void begin_step() { ++step_; }
  // Adapters of a step are the device's from now on, as far as it holds them.
  void use_device(std::unique_ptr<StackedAdapters> adapters);
  const StackedAdapters* device_adapters() const { return device_adapters_.get(); }
  // Why adapters are computed on the host of a device that serves others; since the last call.
  std::vector<std::string> take_notes();
  // A step begins whose rows these are: activates their adapters and makes the plan. An error is activate_adapter()'s, and leaves
  // no plan.
  Status set_adapter_mapping(std::span<const LoRASegment> segments, StepRows rows = {});
  const PunicaWrapper& punica_wrapper() const { return punica_wrapper_; }

  std::span<const LoRATarget> targets() const { return targets_; }
  const LoRAConfig& config() const { return config_; }
  Device device() const { return device_; }
  int64_t max_num_seqs() const { return max_num_seqs_; }
  int64_t max_num_batched_tokens() const { return max_num_batched_tokens_; }

 private:
  struct Registered {
    PackedVoice voice;
    int32_t slot = 0;  // 0 = not active
    bool pinned = false;
  };
  int32_t find_slot() const;  // a free one, or the one to give way; 0 = none

  std::span<const LoRATarget> targets_;
  LoRAConfig config_;
  Device device_;
  int64_t max_num_seqs_;
  int64_t max_num_batched_tokens_;
  PunicaWrapper punica_wrapper_;
  std::unique_ptr<StackedAdapters> device_adapters_;  // null: this device has none of its own
  std::unordered_map<AdapterKey, Registered> registered_;
  // By slot.
  std::vector<AdapterKey> lora_index_to_id_;
  std::vector<const PackedVoice*> slot_voices_;
  std::vector<uint64_t> slot_step_;  // when it was last activated
  std::vector<const PackedVoice*> segment_voices_;
  uint64_t step_ = 1;
};

}  // namespace choral::lora
