// What is written into a slot for its voice: A and B of each projection, DoRA's factors and biases. Pieces are made from the
// host's panels one at a time, and each is copied before the next is made. The engine's thread puts it together. Any thread may
// carry it out, while the stacks stay where they are and the slot is not read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "lora/stacked/optimized_lora_weights.h"
#include "lora/target.h"

namespace choral::lora {

class SlotWrite {
 public:
  // Into the stacks of a projection. What lies in the slot has rank `rank` at most, as has the voice: beyond are zeros that stay.
  struct PairPiece {
    int target = 0;
    size_t pair = 0;
    LoRAColumns columns = {};
    int64_t in = 0;
    int64_t rank = 0;
    int64_t stack_rank = 0;
    int32_t own_rank = 0;  // the voice's
    std::byte *a = nullptr, *b = nullptr, *ranks = nullptr;
  };
  // A null one has no stack.
  struct VectorPiece {
    int target = 0;
    int64_t out = 0;
    std::byte *factors = nullptr, *offsets = nullptr;
  };
  // Rows of the host's without gaps to rows of the device's.
  using CopyRows = FunctionRef<Status(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t row_bytes, int64_t rows)>;

  // `targets` outlive this.
  SlotWrite(std::span<const LoRATarget> targets, PackedVoice voice, DType dtype)
      : targets_(targets), voice_(std::move(voice)), dtype_(dtype) {}

  void add(const PairPiece& piece) { pairs_.push_back(piece); }
  void add(const VectorPiece& piece) { vectors_.push_back(piece); }
  std::span<const PairPiece> pairs() const { return pairs_; }

  // All of it, unless `stop` comes between two pieces. A value that the stacks' type does not hold, no memory of the host's, or
  // what `copy` gives.
  Status run(CopyRows copy, const std::atomic<bool>& stop) const;

 private:
  Status run_piece(size_t piece, CopyRows copy) const;
  Status run_pair(const PairPiece& piece, CopyRows copy) const;
  Status run_vectors(const VectorPiece& piece, CopyRows copy) const;

  std::span<const LoRATarget> targets_;
  PackedVoice voice_;  // kept by the host until all is written
  DType dtype_;
  std::vector<PairPiece> pairs_;
  std::vector<VectorPiece> vectors_;
};

}  // namespace choral::lora
