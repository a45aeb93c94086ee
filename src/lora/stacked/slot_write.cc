#include "lora/stacked/slot_write.h"

#include "base/out_of_memory.h"
#include "lora/stacked/slot_vectors.h"

namespace choral::lora {

Status SlotWrite::run(CopyRows copy, const std::atomic<bool>& stop) const {
  return or_out_of_memory("an adapter cannot be put into the device's memory", [&]() -> Status {
    for (size_t piece = 0; piece < pairs_.size() + vectors_.size() && !stop; ++piece) {
      CHORAL_RETURN_IF_ERROR(run_piece(piece, copy));
    }
    return {};
  });
}

Status SlotWrite::run_piece(size_t piece, CopyRows copy) const {
  if (piece < pairs_.size()) return run_pair(pairs_[piece], copy);
  return run_vectors(vectors_[piece - pairs_.size()], copy);
}

Status SlotWrite::run_pair(const PairPiece& piece, CopyRows copy) const {
  CHORAL_TRY(const auto weights, OptimizedLoRAWeights::create(voice_, piece.target, piece.columns, piece.in, piece.rank, dtype_));
  const int64_t a_bytes = weights.lora_a().size_bytes(), b_row_bytes = row_bytes(dtype_, piece.rank);
  CHORAL_RETURN_IF_ERROR(copy(piece.a, a_bytes, weights.lora_a().data, a_bytes, 1));
  CHORAL_RETURN_IF_ERROR(
      copy(piece.b, row_bytes(dtype_, piece.stack_rank), weights.lora_b().data, b_row_bytes, piece.columns.count));
  constexpr int64_t kRankBytes = sizeof piece.own_rank;
  return copy(piece.ranks, kRankBytes, std::as_bytes(std::span(&piece.own_rank, 1)).data(), kRankBytes, 1);
}

Status SlotWrite::run_vectors(const VectorPiece& piece, CopyRows copy) const {
  SlotVectors v = SlotVectors::of(targets_[piece.target], voice_, piece.target, piece.out);
  v.factors.resize(piece.out, 1.0F);
  v.offsets.resize(piece.out, 0.0F);
  const int64_t bytes = row_bytes(DType::kF32, piece.out);
  if (piece.factors != nullptr) {
    CHORAL_RETURN_IF_ERROR(copy(piece.factors, bytes, std::as_bytes(std::span(v.factors)).data(), bytes, 1));
  }
  if (piece.offsets == nullptr) return {};
  return copy(piece.offsets, bytes, std::as_bytes(std::span(v.offsets)).data(), bytes, 1);
}

}  // namespace choral::lora
