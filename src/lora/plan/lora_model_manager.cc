#include "lora/plan/lora_model_manager.h"

#include <algorithm>

namespace choral::lora {
namespace {

Status check_voice(AdapterKey key, const PackedVoice& voice) {
  if (key.value() < 1) return invalid_argument("adapter id {}: ids begin at 1, 0 is the base model", key.value());
  if (voice.empty()) return invalid_argument("adapter id {} has no adapters", key.value());
  if (voice.size() > kMaxVoiceTerms) {
    return invalid_argument("{} adapters at once; at most {} can act together", voice.size(), kMaxVoiceTerms);
  }
  const bool alone = voice.size() == 1 && voice.front().factor == 1.0F;
  for (const auto& term : voice) {
    if (!alone && term.adapter->replaces()) {
      return invalid_argument(
          "an adapter that replaces whole weights (modules_to_save, trainable tokens) or brings tokens of its own cannot be "
          "mixed "
          "or scaled; use it alone, with factor 1");
    }
  }
  return {};
}

}  // namespace

LoRAModelManager::LoRAModelManager(std::span<const LoRATarget> targets, const LoRAConfig& config, Device device,
                                   int64_t max_num_seqs, int64_t max_num_batched_tokens)
    : targets_(targets),
      config_(config),
      device_(device),
      max_num_seqs_(max_num_seqs),
      max_num_batched_tokens_(max_num_batched_tokens),
      punica_wrapper_(max_num_seqs),
      lora_index_to_id_(static_cast<size_t>(config.max_loras) + 1),
      slot_voices_(lora_index_to_id_.size()),
      slot_step_(lora_index_to_id_.size()) {
  segment_voices_.reserve(max_num_seqs);  // a sequence is at most one segment
}

Status LoRAModelManager::add_adapter(AdapterKey key, PackedVoice voice) {
  CHORAL_RETURN_IF_ERROR(check_voice(key, voice));
  if (registered_.contains(key)) return already_exists("adapter id {} is registered", key.value());
  if (registered_.size() >= static_cast<size_t>(config_.cpu_loras())) {
    return resource_exhausted("{} adapters are registered, the most that max_cpu_loras allows; remove one", registered_.size());
  }
  registered_.emplace(key, Registered{std::move(voice)});
  return {};
}

bool LoRAModelManager::remove_adapter(AdapterKey key) {
  deactivate_adapter(key);
  if (device_adapters_ != nullptr) device_adapters_->forget(key);
  return registered_.erase(key) == 1;
}

const PackedVoice* LoRAModelManager::get_adapter(AdapterKey key) const {
  const auto found = registered_.find(key);
  return found == registered_.end() ? nullptr : &found->second.voice;
}

std::vector<AdapterKey> LoRAModelManager::list_adapters() const {
  std::vector<AdapterKey> keys;
  for (const auto& [key, entry] : registered_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

int32_t LoRAModelManager::find_slot() const {
  int32_t best = 0;
  for (size_t slot = 1; slot < lora_index_to_id_.size(); ++slot) {
    const AdapterKey key = lora_index_to_id_[slot];
    if (key == kBaseKey) return static_cast<int32_t>(slot);
    if (slot_step_[slot] == step_ || registered_.at(key).pinned) continue;
    if (best == 0 || slot_step_[slot] < slot_step_[best]) best = static_cast<int32_t>(slot);
  }
  return best;
}

Result<int32_t> LoRAModelManager::activate_adapter(AdapterKey key) {
  const auto found = registered_.find(key);
  if (found == registered_.end()) return not_found("adapter id {} is not registered", key.value());
  Registered& entry = found->second;
  if (entry.slot == 0) {
    const int32_t slot = find_slot();
    if (slot == 0) {
      return resource_exhausted("all {} adapter slots are taken in this step or pinned; raise max_loras", capacity());
    }
    deactivate_adapter(lora_index_to_id_[slot]);
    entry.slot = slot;
    lora_index_to_id_[slot] = key;
    slot_voices_[slot] = &entry.voice;
  }
  slot_step_[entry.slot] = step_;
  return entry.slot;
}

void LoRAModelManager::use_device(std::unique_ptr<StackedAdapters> adapters) {
  device_adapters_ = std::move(adapters);
  punica_wrapper_.use_device(device_adapters_.get());
}

std::vector<std::string> LoRAModelManager::take_notes() {
  return device_adapters_ == nullptr ? std::vector<std::string>() : device_adapters_->take_notes();
}

Status LoRAModelManager::set_adapter_mapping(std::span<const LoRASegment> segments, StepRows rows) {
  begin_step();
  punica_wrapper_.clear();
  segment_voices_.clear();
  for (const auto& segment : segments) {
    CHORAL_TRY(const int32_t slot, activate_adapter(segment.key));
    segment_voices_.push_back(slot_voices_[slot]);
  }
  punica_wrapper_.update_metadata(segments, segment_voices_, rows);
  return {};
}

bool LoRAModelManager::deactivate_adapter(AdapterKey key) {
  const auto found = registered_.find(key);
  if (found == registered_.end() || found->second.slot == 0) return false;
  const auto slot = static_cast<size_t>(found->second.slot);
  lora_index_to_id_[slot] = kBaseKey;
  slot_voices_[slot] = nullptr;
  slot_step_[slot] = 0;
  found->second.slot = 0;
  return true;
}

Status LoRAModelManager::pin_adapter(AdapterKey key, bool pinned) {
  const auto found = registered_.find(key);
  if (found == registered_.end()) return not_found("adapter id {} is not registered", key.value());
  if (pinned && !found->second.pinned) {
    const auto pins = std::count_if(registered_.begin(), registered_.end(), [](const auto& e) { return e.second.pinned; });
    if (static_cast<size_t>(pins) + 1 >= capacity() && capacity() > 1) {
      return resource_exhausted("{} of {} adapter slots are pinned; one must stay free for the others", pins, capacity());
    }
    auto slot = activate_adapter(key);
    if (!slot.ok()) return std::move(slot).status();
  }
  found->second.pinned = pinned;
  return {};
}

}  // namespace choral::lora
