// Adapters on a device with memory of its own: the counterpart of PunicaWrapper for stacks. A voice of the step gets a slot of
// LoRAMemoryPool, with its A and B in the device's memory. Layers then run the table's stacked operators over all rows at once.
// A slot is a voice's from its begin to its end. Its contents stay for when the same adapters begin again, until the host drops
// one of them or another voice needs the slot; the one unused for longest leaves (LoRAMemoryManager). Where all
// slots are in use, a new voice waits. Where the device takes copies beside its steps, slots are written so (SlotUploads), and a
// voice waits for its slot. The host computes a voice that the device cannot hold even alone, with a note that says why. So a
// voice is always computed by the same arithmetic.
// Engine thread. A step whose voices have slots allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lora/plan/lora_segment.h"
#include "lora/plan/row_group.h"
#include "lora/readiness.h"
#include "lora/stacked/lora_batch_processor.h"
#include "lora/stacked/lora_memory_pool.h"
#include "lora/stacked/slot_uploads.h"
#include "lora/store/lora_memory_manager.h"

namespace choral::lora {

class StackedAdapters {
 public:
  // `ctx` and `targets` outlive this. A step has at most `max_tokens` rows of `max_voices` voices. writes_beside: slots are
  // written while steps run, where the device can.
  static Result<std::unique_ptr<StackedAdapters>> make(const platform::Context& ctx, std::span<const LoRATarget> targets,
                                                       const LoRAMemoryPoolSize& size, int64_t max_voices, int64_t max_tokens,
                                                       bool writes_beside = true);

  // A voice begins, whose adapters the host keeps until it ends. Coming: it does not yet, and may be activated again after
  // take_uploaded() has taken something. unavailable: those that run have the slots or the memory, and it may be activated again
  // when one of them ended.
  Result<Readiness> activate_adapter(AdapterKey key, const PackedVoice& voice);
  // Takes in what has come since the last call: between steps, and not between two activate_adapter() that shall be answered
  // alike.
  void take_uploaded();
  // Called by another thread when take_uploaded() has something to take.
  void set_wake(std::function<void()> wake);
  // Whether slots are written while steps run.
  bool uploads_beside() const { return uploads_ != nullptr; }
  // The voice of this key ends, or becomes another.
  void deactivate_adapter(AdapterKey key);

  // The step: places its rows. Its voices are active, voices[i] is that of segments[i].
  void begin_step(std::span<const LoRASegment> segments, std::span<const PackedVoice* const> voices, StepRows rows);
  // Whether this voice's rows are computed here, in this step.
  bool serves(const PackedVoice* voice) const { return index_of(voice) != 0; }

  // The base's product into `y` with this epilogue.
  using BaseProduct = FunctionRef<void(const kernels::Epilogue& epilogue, MatrixView<float> y)>;
  // y = base(x) (+ y, where the epilogue accumulates) + what the rows' voices add. What the epilogue's hooks do for rows that are
  // not served here stays right. x [tokens, in], y [tokens, out]
  void add_lora_linear(const platform::Context& ctx, int target, MatrixView<const float> x, const kernels::Epilogue& epilogue,
                       MatrixView<float> y, BaseProduct base) const;
  // The same for rows that are not the step's own: those of `groups`, ascending; groups that are not served are passed over.
  void add_lora_linear(const platform::Context& ctx, int target, std::span<const RowGroup> groups, MatrixView<const float> x,
                       const kernels::Epilogue& epilogue, MatrixView<float> y, BaseProduct base);
  // `out` holds the base's rows of `ids`. [tokens, hidden]
  void add_lora_embedding(const platform::Context& ctx, int target, platform::IndexArray<int32_t> ids,
                          MatrixView<float> out) const;

  const LoRAMemoryPool& pool() const { return pool_; }
  const LoRAMemoryManager& memory() const { return memory_; }
  // Voices that are the host's, and why.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  StackedAdapters(const platform::Context& ctx, std::span<const LoRATarget> targets, const LoRAMemoryPoolSize& size);

  static constexpr int32_t kOnHost = LoRAMemoryPool::kNoSlot;
  static constexpr int32_t kLater = kOnHost - 1;  // a voice that has no slot yet
  // In the book of memory a slot is a tenant, whoever's it is.
  static AdapterId tenant(int32_t slot) { return AdapterId(slot + 1); }
  static int32_t slot_of(AdapterId tenant) { return tenant.value() - 1; }

  void look_at_device();
  void clear_dropped();
  Result<int32_t> place(const PackedVoice& voice);
  bool waits_for_uploads(const PackedVoice& voice);
  Status write(LoRAMemoryPool::Placed placed);
  void wait_for_moves();
  Status write_now(const SlotWrite& write) const;
  void end_upload(SlotUpload& upload);
  Result<int32_t> give_up(int32_t slot, const PackedVoice& voice);
  int32_t leave_to_host(const PackedVoice& voice, const Status& why);
  int32_t use(AdapterKey key, const PackedVoice* voice);  // its index
  int32_t index_of(const PackedVoice* voice) const;       // 0 = not served
  // The base's product; what replaces or rescales it; then every pair's shrink and expand.
  void lora_computation_flow(const platform::Context& ctx, int target, const LoRABatch& batch, MatrixView<const float> x,
                             const kernels::Epilogue& epilogue, MatrixView<float> y, BaseProduct base) const;
  void change_product(const platform::Context& ctx, int target, const LoRABatch& batch, MatrixView<const float> x,
                      MatrixView<float> product) const;
  void replace_tokens(const platform::Context& ctx, const LoRAMemoryPool::Module& module, platform::IndexArray<int32_t> ids,
                      MatrixView<float> out) const;
  template <class Fits>
  bool any_module(int target, const LoRABatch& batch, Fits fits) const;

  const platform::Context& ctx_;
  LoRAMemoryPool pool_;
  LoRAMemoryManager memory_;  // whose tenants are the slots' voices, in use while they run
  LoRABatchProcessor processor_;
  Tensor ones_;                                      // [max_tokens, 1], on the device
  std::unordered_map<AdapterKey, int32_t> slot_of_;  // of those that run: a slot, or kOnHost
  bool full_ = false;                                // somebody found no room beside those that run, and none ended since
  // The step. Index i of the mapping is voices_[i], and has slot stack_position_[i]; 0 is the base.
  LoRAMapping mapping_;
  std::vector<const PackedVoice*> voices_;
  std::vector<int32_t> stack_position_;
  const LoRABatch* batch_ = nullptr;
  bool given_up_ = false;  // an operator on stacks failed: all voices are the host's
  std::vector<std::string> notes_;
  std::set<std::string> noted_;  // each is said once

  int64_t coming_ = 0;   // slots
  bool drains_ = false;  // somebody waits until none is coming
  std::vector<SlotUpload> ended_;
  std::unique_ptr<SlotUploads> uploads_;  // null: slots are written by the engine's thread. Ends before the stacks do
};

}  // namespace choral::lora
