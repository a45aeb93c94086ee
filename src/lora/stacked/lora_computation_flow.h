// Multi-adapter LoRA from end to end in its public form, usable without the engine: adapter requests → files → LoRAModels →
// stacks → the operations of kernels/lora/lora.h → y = base + delta for one linear module. It is what the engine does, written
// out plainly step by step; each step can be read, tested and replaced by itself. The engine's own path is PunicaWrapper over
// packed adapters. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "kernels/context.h"
#include "kernels/gemm/packed_matrix.h"
#include "lora/lora_config.h"
#include "lora/lora_request.h"
#include "lora/peft/lora_model.h"
#include "lora/stacked/lora_batch_processor.h"
#include "lora/stacked/lora_memory_pool.h"
#include "lora/target.h"

namespace choral::lora {

// The sequences of a step: adapter id (0 = base) and number of rows of each, in the order of x's rows.
struct LoRASequences {
  std::span<const int32_t> lora_ids;
  std::span<const int64_t> lengths;
};

class LoRAComputationFlow {
 public:
  // Steps 1 and 2: reads and checks each request's files. The first that fails is the error, naming the adapter. max_tokens rows
  // at most are expected at a time; more work too, with memory of their own.
  static Result<LoRAComputationFlow> load(std::span<const LoRARequest> requests, std::span<const LoRATarget> targets,
                                          const LoRAConfig& config, int64_t max_tokens);

  const LoRAModel* find(int32_t id) const;

  // Step 3: indices and stacks of one module ("model.layers.0.self_attn.q_proj").
  Result<LoRABatch> prepare(std::string_view module, const LoRASequences& sequences) const;
  // Steps 4 and 5: y[:, :] += scaling · B·(A·x), middle in fp32. y [tokens, out] contiguous; rows of the base are not touched.
  Status add_delta(const kernels::Context& ctx, const LoRABatch& batch, MatrixView<const float> x, MatrixView<float> y);

  // All of it: y = x·Wᵀ (+ bias) + delta, where W is the base's matrix of that module. x [tokens, in], y [tokens, out],
  // contiguous. bias [out] or empty.
  Status forward(const kernels::Context& ctx, std::string_view module, const kernels::PackedMatrix& base,
                 std::span<const float> bias, const LoRASequences& sequences, MatrixView<const float> x, MatrixView<float> y);

  const LoRAMemoryPoolStats& pool_stats() const { return pool_->stats(); }

 private:
  LoRAComputationFlow() = default;

  std::unordered_map<int32_t, LoRAModel> models_;  // by id
  std::unique_ptr<LoRAMemoryPool> pool_;
};

}  // namespace choral::lora
