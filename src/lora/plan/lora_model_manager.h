// The adapters of one model on one device. Registered: packed and ready, known by an id. Active: has a slot, as all adapters of a
// step do (slot 0 is the base). A slot costs a pointer, so activating is cheap and any registered adapter can be
// in the next step; when slots are short the one unused longest gives way. An id may also stand for a mix of several adapters.
// Engine thread only. Registering may allocate; activating and planning a step do not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

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

  // Registers. already_exists for an id in use; resource_exhausted when max_cpu_loras are registered and none can give way;
  // invalid_argument for an id below 1, a mix of more than kMaxVoiceTerms, or one that replaces weights and is not alone at
  // factor 1.
  Status add_adapter(int32_t id, Voice voice);
  // Also gives its slot back. False when there is none.
  bool remove_adapter(int32_t id);
  const Voice* get_adapter(int32_t id) const;
  std::vector<int32_t> list_adapters() const;  // ascending
  size_t adapter_count() const { return registered_.size(); }

  // The slot of a registered adapter, given now if it has none. not_found for an unknown id; resource_exhausted when every slot
  // is pinned or was activated since begin_step().
  Result<int32_t> activate_adapter(int32_t id);
  bool deactivate_adapter(int32_t id);
  // A pinned adapter keeps its slot.
  Status pin_adapter(int32_t id, bool pinned = true);
  // Slot -> id; 0 = free. [0] is the base.
  std::span<const int32_t> lora_index_to_id() const { return lora_index_to_id_; }
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
    Voice voice;
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
  std::unordered_map<int32_t, Registered> registered_;
  // By slot.
  std::vector<int32_t> lora_index_to_id_;
  std::vector<const Voice*> slot_voices_;
  std::vector<uint64_t> slot_step_;  // when it was last activated
  std::vector<const Voice*> segment_voices_;
  uint64_t step_ = 1;
};

}  // namespace choral::lora
