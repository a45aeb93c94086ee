// Who gets a slot of the device, when it has come there, and who is the host's.
#include "base/log.h"
#include "base/out_of_memory.h"
#include "lora/stacked/stacked_adapters.h"
#include "platform/host_view.h"

namespace choral::lora {
namespace {

// By the digests that adapters are listed with.
std::string described(const PackedVoice& voice) {
  std::string text = voice.size() == 1 ? "the adapter " : "the mix of adapters ";
  for (const auto& term : voice) {
    constexpr size_t kShown = 12;
    text += (&term == &voice.front() ? "" : ", ") + to_hex(term.adapter->digest()).substr(0, kShown);
  }
  return text;
}

}  // namespace

Result<Readiness> StackedAdapters::activate_adapter(AdapterKey key, const PackedVoice& voice) {
  look_at_device();
  int32_t slot = kOnHost;
  if (!given_up_) {
    clear_dropped();
    slot = pool_.find(voice);
    if (slot == LoRAMemoryPool::kNoSlot) {
      CHORAL_TRY(slot, place(voice));
    }
    if (slot == kLater || (slot != kOnHost && pool_.coming(slot))) return Readiness::kComing;
    if (slot != kOnHost && !pool_.failure(slot).ok()) {
      CHORAL_TRY(slot, give_up(slot, voice));
    }
  }
  slot_of_.emplace(key, slot);
  if (slot != kOnHost) memory_.acquire(tenant(slot), MemoryUse::kRequest);
  return Readiness::kReady;
}

void StackedAdapters::clear_dropped() {
  for (int32_t slot = 0; slot < pool_.slot_count(); ++slot) {
    if (pool_.coming(slot) || !pool_.dropped(slot)) continue;
    pool_.clear(slot);
    memory_.drop(tenant(slot));
  }
}

// kOnHost: the device cannot hold it even alone.
Result<int32_t> StackedAdapters::place(const PackedVoice& voice) {
  if (voice.front().adapter->own_tokens() > 0) {
    return leave_to_host(voice,
                         unsupported("it brings tokens of its own, whose rows have no place in stacks of the base's size"));
  }
  if (full_) return unavailable("adapters that run have the device's slots");
  if (waits_for_uploads(voice)) return kLater;
  auto placed = pool_.put(voice);
  const auto no_room = [&] { return !placed.ok() && placed.status().code() == Code::kResourceExhausted; };
  while (no_room()) {
    const auto idle = memory_.evict_to_cpu();
    if (!idle) break;
    pool_.clear(slot_of(*idle));
    if (waits_for_uploads(voice)) return kLater;
    placed = pool_.put(voice);
  }
  if (no_room()) {
    full_ = memory_.used().adapters > 0;
    if (full_) return unavailable("adapters that run have the device's slots: {}", placed.status().message());
    pool_.clear_all();  // the stacks that others left may be what is in the way
    placed = pool_.put(voice);
  }
  if (!placed.ok()) return leave_to_host(voice, placed.status());
  const int32_t slot = placed->slot;
  const MemoryAnswer room = memory_.allocate_adapter(tenant(slot), pool_.slot_bytes(slot));
  CHORAL_CHECK(room.room == MemoryRoom::kFits, "the device's slots have more than their budget");
  CHORAL_RETURN_IF_ERROR(write(std::move(*placed)));
  return slot;
}

// Stacks do not grow while a slot is written. Nor does another voice come first where somebody waits for that: it would wait for
// ever.
bool StackedAdapters::waits_for_uploads(const PackedVoice& voice) {
  drains_ = coming_ > 0 && (drains_ || pool_.must_grow(voice));
  return drains_;
}

Status StackedAdapters::write(LoRAMemoryPool::Placed placed) {
  const int32_t slot = placed.slot;
  if (uploads_ == nullptr) {
    pool_.finish(slot, placed.write, write_now(placed.write));
    return {};
  }
  wait_for_moves();
  Status begun = or_out_of_memory("an adapter cannot be put into the device's memory", [&] {
    uploads_->begin({.slot = slot, .write = std::move(placed.write)});
    return Status();
  });
  if (begun.ok()) {
    memory_.acquire(tenant(slot), MemoryUse::kLoad);
    ++coming_;
    return {};
  }
  pool_.clear(slot);
  memory_.drop(tenant(slot));
  return begun;
}

// A slot that was moved may be another's by now, and the thread that writes it waits for no copy that is queued here. Whatever is
// fetched comes after all of them.
void StackedAdapters::wait_for_moves() {
  if (!pool_.take_moved() || platform::host_reads(ctx_.session)) return;
  float fetched = 0;
  constexpr int64_t kBytes = sizeof fetched;
  ctx_.session.copy(platform::CopyKind::kToHost, &fetched, kBytes, ones_.view().data, kBytes, kBytes, 1);
}

Status StackedAdapters::write_now(const SlotWrite& write) const {
  const std::atomic<bool> never{false};
  return write.run(
      [&](std::byte* to, int64_t to_pitch, const std::byte* from, int64_t row_bytes, int64_t rows) {
        platform::copy_rows(ctx_.session, platform::CopyKind::kToDevice, to, to_pitch, from, row_bytes, row_bytes, rows);
        return Status();
      },
      never);
}

void StackedAdapters::set_wake(std::function<void()> wake) {
  if (uploads_ != nullptr) uploads_->set_wake(std::move(wake));
}

void StackedAdapters::take_uploaded() {
  if (uploads_ == nullptr) return;
  uploads_->take(ended_);
  for (auto& upload : ended_) end_upload(upload);
  ended_.clear();
}

// From here on the slot is its voice's for as long as nobody else needs it, as if the voice had just ended. A device that fails
// fails its next step too, which says why to those who are in it.
void StackedAdapters::end_upload(SlotUpload& upload) {
  const bool device_fails = !upload.device.ok();
  if (device_fails) ctx_.session.fail(std::move(upload.device));
  pool_.finish(upload.slot, upload.write, device_fails ? Status() : std::move(upload.made));
  memory_.release(tenant(upload.slot), MemoryUse::kLoad);
  full_ = false;
  if (--coming_ == 0) drains_ = false;
}

// What could not be made of the voice in the slot is the host's, unless the host itself lacks the memory for it.
Result<int32_t> StackedAdapters::give_up(int32_t slot, const PackedVoice& voice) {
  Status why = pool_.failure(slot);
  pool_.clear(slot);
  memory_.drop(tenant(slot));
  if (why.code() == Code::kResourceExhausted) return why;
  return leave_to_host(voice, why);
}

int32_t StackedAdapters::leave_to_host(const PackedVoice& voice, const Status& why) {
  std::string note = fmt::format("{} is computed on the host: {}", described(voice), why.message());
  if (noted_.insert(note).second) {  // else it was here before
    CHORAL_LOG(kWarn, "{}", note);
    notes_.push_back(std::move(note));
  }
  return kOnHost;
}

void StackedAdapters::deactivate_adapter(AdapterKey key) {
  const auto known = slot_of_.find(key);
  if (known == slot_of_.end()) return;
  if (known->second != kOnHost) {
    memory_.release(tenant(known->second), MemoryUse::kRequest);
    full_ = false;
  }
  slot_of_.erase(known);
}

}  // namespace choral::lora
