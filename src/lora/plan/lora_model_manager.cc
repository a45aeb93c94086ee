#include "lora/plan/lora_model_manager.h"

#include "base/out_of_memory.h"

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

LoRAModelManager::LoRAModelManager(int64_t max_num_seqs, bool fully_sharded) : punica_wrapper_(max_num_seqs, fully_sharded) {
  segment_voices_.reserve(max_num_seqs);  // a sequence is at most one segment
}

Result<Readiness> LoRAModelManager::add_adapter(AdapterKey key, PackedVoice voice) {
  CHORAL_RETURN_IF_ERROR(check_voice(key, voice));
  const auto [entry, added] = registered_.try_emplace(key, std::move(voice));
  if (!added) return already_exists("adapter id {} is registered", key.value());
  if (device_adapters_ == nullptr) return Readiness::kReady;
  auto placed = or_out_of_memory("an adapter cannot be put into the device's memory", [&, &registered = entry->second] {
    return device_adapters_->activate_adapter(key, registered);
  });
  if (!placed.ok() || *placed == Readiness::kComing) registered_.erase(entry);
  return placed;
}

void LoRAModelManager::take_uploaded() {
  if (device_adapters_ != nullptr) device_adapters_->take_uploaded();
}

void LoRAModelManager::set_wake(std::function<void()> wake) {
  if (device_adapters_ != nullptr) device_adapters_->set_wake(std::move(wake));
}

bool LoRAModelManager::remove_adapter(AdapterKey key) {
  if (device_adapters_ != nullptr) device_adapters_->deactivate_adapter(key);
  return registered_.erase(key) == 1;
}

const PackedVoice* LoRAModelManager::get_adapter(AdapterKey key) const {
  const auto found = registered_.find(key);
  return found == registered_.end() ? nullptr : &found->second;
}

void LoRAModelManager::use_device(std::unique_ptr<StackedAdapters> adapters) {
  device_adapters_ = std::move(adapters);
  punica_wrapper_.use_device(device_adapters_.get());
}

std::vector<std::string> LoRAModelManager::take_notes() {
  return device_adapters_ == nullptr ? std::vector<std::string>() : device_adapters_->take_notes();
}

Status LoRAModelManager::set_adapter_mapping(std::span<const LoRASegment> segments, StepRows rows) {
  punica_wrapper_.clear();
  segment_voices_.clear();
  for (const auto& segment : segments) {
    segment_voices_.push_back(get_adapter(segment.key));
    if (segment_voices_.back() == nullptr) return not_found("adapter id {} is not registered", segment.key.value());
  }
  punica_wrapper_.update_metadata(segments, segment_voices_, rows);
  return {};
}

}  // namespace choral::lora
