// The device's slots. Each target that a voice in a slot touches has stacks of A [slots, rank, in] and B [slots, out, rank], one
// pair for each projection, in one float type; other targets have none. A rank of a divided model has what its own outputs need:
// all of A, and its rows of B. DoRA's factors and biases [slots, out] are beside them,
// and matrices that the device packed: replaced ones, and embeddings' lookups.
// A stack's rank is the largest in it, rounded up to eight, and it has as many slots as were needed at a time. Both grow by
// copies on the device. Padding is zeros, which add nothing, so an answer's bits do not depend on it; each slot's own rank lets a
// device skip it. Whoever carries a SlotWrite out writes the slot, maybe beside steps. Until then the slot is coming, and stacks
// stay where they are.
// Engine thread; slots change between steps. A steady state allocates and copies nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lora/stacked/slot_vectors.h"
#include "lora/stacked/slot_write.h"
#include "lora/target.h"
#include "platform/ops/arguments.h"
#include "platform/session.h"

namespace choral::lora {

struct LoRAMemoryPoolSize {
  int64_t max_slots = 8;
  int64_t budget_bytes = 0;   // of everything here; 0 = as much as the device gives
  DType dtype = DType::kF32;  // of the stacks: float32, float16 or bfloat16
};

class LoRAMemoryPool {
 public:
  static constexpr int32_t kNoSlot = -1;

  // A and B of one projection, or of a part of one that a rank has. Empty until a voice brings some: rank 0.
  struct Pair {
    LoRAColumns columns;  // of the whole layer's outputs
    int64_t at = 0;       // where they begin in what is computed
    int64_t rank = 0;
    Tensor a = {}, b = {};
    std::vector<int32_t> ranks = {};  // by slot: of the voice that is there; of what it left, or is being written, at most
    Tensor ranks_on_device = {};      // [slots]
  };
  struct Stacks {
    int64_t in = 0, out = 0;  // what is computed of the layer's outputs
    std::vector<Pair> pairs;
    Tensor factors;  // [slots, 1, out], float32; empty while no voice has any
    Tensor offsets;  // [slots, out, 1], likewise: a B whose middle is 1
  };
  // What one voice brings to one target that is no stack.
  struct Module {
    bool on_product = false;  // it changes the base's product: factors, offsets or replaced columns
    struct Replaced {
      int64_t begin = 0;  // columns [begin, begin + matrix->n()) of what is computed
      std::unique_ptr<kernels::PackedMatrix> matrix;
    };
    std::vector<Replaced> replaced;                               // of a linear layer or a head, ascending
    std::unique_ptr<kernels::PackedMatrix> table;                 // of an embedding, as a whole
    std::vector<int32_t> token_ids;                               // of an embedding: ascending,
    std::unique_ptr<kernels::PackedMatrix> token_rows;            // and their rows
    std::vector<std::unique_ptr<kernels::PackedMatrix>> lookups;  // [vocabulary, rank], one a term, null where it has none
  };

  // `ctx` and `targets` outlive this.
  LoRAMemoryPool(const platform::Context& ctx, std::span<const LoRATarget> targets, const LoRAMemoryPoolSize& size);

  // Whether put() would make stacks larger: not while a slot is coming.
  bool must_grow(const PackedVoice& voice) const;
  struct Placed {
    int32_t slot;
    SlotWrite write;
  };
  // Gives `voice` a slot, which does not keep its adapters on the host, and is coming until finish(). On an error (unsupported:
  // the device does not take one of its matrices; resource_exhausted: no room) nothing has changed for the others.
  Result<Placed> put(const PackedVoice& voice);
  // Its voice is written, or `failure` says why it can't be.
  void finish(int32_t slot, const SlotWrite& write, Status failure);
  // Where these adapters with these factors are, or come; kNoSlot: nowhere.
  int32_t find(const PackedVoice& voice) const;
  // Whether slots were moved to larger stacks since the last call, by copies that may still be queued.
  bool take_moved() { return std::exchange(moved_, false); }
  bool coming(int32_t slot) const { return slots_[slot].coming; }
  const Status& failure(int32_t slot) const { return slots_[slot].failure; }
  // Whether the host dropped an adapter of the voice in the slot, so that nobody can ask for it again.
  bool dropped(int32_t slot) const;
  void clear(int32_t slot);
  // All slots, and the stacks too, which are as large as whoever was here needed.
  void clear_all();

  const Stacks& stacks(int target) const { return stacks_[target]; }
  // Null when the voice in the slot leaves the target alone.
  const Module* module(int32_t slot, int target) const {
    const auto& modules = slots_[slot].modules;
    return modules.empty() ? nullptr : modules[target].get();
  }
  int64_t slot_count() const { return std::ssize(slots_); }
  int64_t size_bytes() const { return size_bytes_; }
  // Of the voice in the slot: its share of the stacks, and its own matrices.
  int64_t slot_bytes(int32_t slot) const;
  static platform::ops::Stack stack_of(const Tensor& stack);
  static platform::ops::Stack stack_a(const Pair& pair) { return ranked(pair, pair.a); }
  static platform::ops::Stack stack_b(const Pair& pair) { return ranked(pair, pair.b); }

 private:
  static platform::ops::Stack ranked(const Pair& pair, const Tensor& stack);
  struct Term {
    std::weak_ptr<const PackedAdapter> adapter;
    float factor = 1.0F;
  };
  struct Slot {
    std::vector<Term> voice = {};                       // empty = free
    std::vector<std::unique_ptr<Module>> modules = {};  // by target
    int64_t bytes = 0;                                  // of the modules' matrices
    bool coming = false;
    Status failure = {};
  };
  struct Run {
    int64_t begin = 0, count = 0;
  };

  int64_t find_free() const;     // slot_count(): none
  int64_t larger_count() const;  // slots after the next growth; slot_count(): there can be no more
  std::vector<Run> taken() const;
  Status reserve_slot();
  Result<Slot> make_slot(const PackedVoice& voice);
  Result<std::unique_ptr<Module>> make_module(const PackedVoice& voice, int target, int64_t& bytes);
  // Rows [begin, begin + count) of a matrix of the host's.
  Result<std::unique_ptr<kernels::PackedMatrix>> place(const kernels::PackedMatrix& host, int64_t begin, int64_t count,
                                                       int64_t& bytes);
  // Replaced outputs of the target, from `first` on, as far as they are held: rows of `host` from `row` on, `count` of them.
  Status place_outputs(const LoRATarget& target, const kernels::PackedMatrix& host, int64_t row, int64_t first, int64_t count,
                       Module& module, int64_t& bytes);
  Result<std::unique_ptr<kernels::PackedMatrix>> place_rows(const std::vector<float>& rows, int64_t cols, DType format,
                                                            int64_t& bytes);
  // Which ranks and vectors a target's stacks must have for the voice too.
  int64_t rank_with(int target, const Pair& pair, const PackedVoice* voice) const;
  SlotVectors vectors_with(int target, const PackedVoice* voice) const;
  // The target's stacks for `slots` slots and for `voice` too, with what is in them; unchanged where they do already.
  Status grow(int target, int64_t slots, const PackedVoice* voice);
  Status grow_pair(Pair& pair, int64_t in, int64_t slots, int64_t rank);
  Status grow_vector(Tensor& vector, Shape shape, float neutral);
  // Rows of the taken slots from one stack to another: slots of either are `pitch` rows apart.
  void move_slots(const Tensor& from, Tensor& to, int64_t rows);
  // What the voice has at the target.
  void plan_write(int target, int64_t slot, const PackedVoice& voice, SlotWrite& write);
  Result<Tensor> allocate(DType dtype, Shape shape);
  void replace(Tensor& place, Tensor made);

  const platform::Context& ctx_;
  std::span<const LoRATarget> targets_;
  LoRAMemoryPoolSize size_;
  std::vector<Stacks> stacks_;  // by target
  std::vector<Slot> slots_;
  int64_t size_bytes_ = 0;
  bool moved_ = false;
};

}  // namespace choral::lora
