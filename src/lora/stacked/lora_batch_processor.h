// A step's rows in the form that the stacked operators take: indices on the device, by row, and for a step with prompts by
// sequence too. The buffers are made once. Preparing a batch copies the arrays to the device and allocates nothing. Engine
// thread.
#pragma once

#include <cstdint>
#include <span>

#include "lora/stacked/batch_lora_data_mapper.h"
#include "lora/stacked/lora_mapping.h"
#include "platform/context.h"
#include "platform/ops/op_table.h"

namespace choral::lora {

struct LoRABatch {
  platform::IndexArray<int32_t> indices;  // of each row: its position in the stacks, -1 = nothing
  platform::SlotSequences sequences;      // the same by runs of rows; on the device only for sgmv
  bool is_prefill = false;                // rows go by sequences (sgmv), else each by itself (bgmv)
  bool no_lora = true;                    // no row has any
};

class LoRABatchProcessor {
 public:
  void reserve(int64_t max_tokens);

  // The step's rows. stack_position is as BatchLoRADataMapper has it. Valid, as the arrays in the step's memory are, until the
  // step ends.
  const LoRABatch& prepare_batch(const platform::Context& ctx, const LoRAMapping& mapping,
                                 std::span<const int32_t> stack_position);
  // The rows of mapping.prompt_mapping, each by itself; until the enclosing StepMark or the next call.
  const LoRABatch& prepare_prompt_batch(const platform::Context& ctx, const LoRAMapping& mapping,
                                        std::span<const int32_t> stack_position);

 private:
  struct Rows {
    BatchLoRADataMapper mapper;
    LoRABatch batch;
  };
  static const LoRABatch& prepare(const platform::Context& ctx, const LoRARows& mapping, std::span<const int32_t> stack_position,
                                  bool is_prefill, Rows& rows);

  Rows tokens_, prompts_;
};

}  // namespace choral::lora
