// The stacked form of a batch: what the six operations of kernels/lora/lora.h take, made from the requests' adapters for one
// module. Stacks hold the adapters that the batch really names, ascending by id, padded with zeros to the largest rank among
// them: zeros add nothing, so the answer is the true ranks'. This is the documented public form, for tools, tests and device
// plug-ins; the engine's own path (PunicaWrapper over packed adapters) copies and pads nothing. Pure functions of their
// arguments; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "lora/peft/lora_layer_weights.h"
#include "tensor/tensor.h"

namespace choral::lora {

// An adapter that requests may name, and its weights for the module; null where it leaves the module alone.
struct ActiveLoRA {
  int32_t id = 0;
  const LoRALayerWeights* weights = nullptr;
};

struct LoRABatch {
  // Stack position of each row and of each sequence, -1 = nothing is added: the kernels' convention.
  std::vector<int32_t> token_indices;     // [tokens]
  std::vector<int32_t> sequence_indices;  // [sequences]
  std::vector<int32_t> sequence_starts;   // [sequences], first row
  std::vector<int32_t> sequence_lengths;  // [sequences]
  int64_t token_count = 0;
  int64_t max_sequence_length = 0;
  bool no_lora = true;  // every index is -1; the stacks are empty

  // By stack position.
  std::vector<int32_t> lora_ids;
  std::vector<int64_t> ranks;   // true ones
  std::vector<float> scalings;  // alpha/r or alpha/sqrt(r): multiplies the middle in fp32, once
  int64_t max_rank = 0;
  Tensor a_stack;  // [n, max_rank, in], float32
  Tensor b_stack;  // [n, out, max_rank], float32

  int64_t batches() const { return static_cast<int64_t>(sequence_lengths.size()); }
  // As the operations take them. [n], int32; valid as long as this.
  static TensorView view_of(std::span<const int32_t> values);
  // Rows of the middle times their adapter's scaling, for a shrink that was run with scaling 1 because the adapters' differ.
  void scale_middle(MatrixView<float> middle) const;
};

class LoRABatchProcessor {
 public:
  // lora_ids[i] (0 = base) and lengths[i] are sequence i's. not_found for an id that is not active; invalid_argument for counts
  // and shapes that do not fit together, naming adapter and module; unsupported for what a stack cannot say (DoRA, biases,
  // embeddings).
  static Result<LoRABatch> prepare_batch(std::span<const int32_t> lora_ids, std::span<const int64_t> lengths,
                                         std::span<const ActiveLoRA> active);
};

}  // namespace choral::lora
