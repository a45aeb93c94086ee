// What operators are given. All matrices are fp32 rows in the device's memory; index arrays come on both sides.
#pragma once

#include <span>
#include <variant>

#include "kernels/activation/activation.h"
#include "kernels/activation/row_changes.h"
#include "kernels/attention/attention.h"
#include "kernels/fused/moe_gating.h"
#include "kernels/gemm/grouped_matmul.h"
#include "kernels/lora/lora_batch.h"
#include "kernels/lora/lora_stack.h"
#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/gated_delta_rule.h"
#include "kernels/recurrent/selective_scan.h"
#include "kernels/rotary/rotary.h"
#include "kernels/sampling/sampled_rows.h"
#include "platform/context.h"

namespace choral::platform {

// An index array of the step, as the host reads it and as the device's operators do.
template <class T>
struct IndexArray {
  std::span<const T> host;
  const T* on_device = nullptr;

  IndexArray() = default;
  IndexArray(std::span<const T> values, const T* device) : host(values), on_device(device) {}
  int64_t size() const { return std::ssize(host); }
  IndexArray sub(int64_t begin, int64_t count) const {
    return {host.subspan(begin, count), on_device == nullptr ? nullptr : on_device + begin};
  }
};

// The step's sequences: as the host's attention reads them, and as the device placed them (Session::place_sequences).
struct SequenceBatch {
  std::span<const kernels::AttentionSequence> host;
  const void* on_device = nullptr;
  const int32_t* block_ids_on_device = nullptr;
  int64_t block_id_count = 0;
};

// Consecutive rows with one slot each, one sequence after the other from row 0 on. [sequences]
struct SlotSequences {
  IndexArray<int32_t> starts, lengths;
  IndexArray<int32_t> slots;  // of adapters' stacks; -1: the rows are not touched
  int64_t max_length = 0;
  int64_t rows = 0;
};

// The slots of rows: one for each row, or one for each sequence.
using RowSlots = std::variant<IndexArray<int32_t>, SlotSequences>;

// How rows of logits are sampled, and where what comes of it goes.
struct SamplingBatch {
  IndexArray<kernels::RowSampling> rows;
  IndexArray<kernels::LogitEdit> edits;
  IndexArray<uint32_t> mask_words;
  IndexArray<int32_t> named;
  std::span<kernels::RowChoice> choices;  // [rows], in the device's memory, as the next
  std::span<kernels::TokenLogprob> top;
};

// A rotary table and its copy where the device's operators read it: [max_positions][cos: rotary_dim/2, sin: rotary_dim/2].
struct PlacedRotary {
  const kernels::RotaryTable& table;
  const float* on_device = nullptr;
};

namespace ops {

using In = MatrixView<const float>;
using Out = MatrixView<float>;  // also what an operator changes
using Weight = std::span<const float>;
using Indices = IndexArray<int32_t>;
using Slots = IndexArray<int64_t>;
using Runs = std::span<const kernels::StateRun>;
using PackedMatrix = kernels::PackedMatrix;
using Epilogue = kernels::Epilogue;
using KvCacheView = kernels::KvCacheView;
using AttentionParams = kernels::AttentionParams;
using ClampedSwiglu = kernels::ClampedSwiglu;
using PositionScale = kernels::PositionScale;
using QuantisedRows = kernels::QuantisedRows;

// Of adapters' matrices in the device's memory.
struct Stack : kernels::LoRAStack {
  Indices ranks = {};  // [count]: from there on a slot's A has rows, its B columns of zeros; empty: nothing is said
};

// The projections of a layer that lora_shrink and lora_expand take together, at most so many: those of q, k and v are three.
inline constexpr size_t kMostLoRASlices = 4;
struct ShrinkSlice {
  Stack a;
  Out middle;  // [rows, rank]
};
struct ExpandSlice {
  Stack b;
  In middle;
  int64_t begin = 0;  // columns [begin, begin + b.rows) of y are this projection's
};

}  // namespace ops
}  // namespace choral::platform
