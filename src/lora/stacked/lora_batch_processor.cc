#include "lora/stacked/lora_batch_processor.h"

#include "platform/host_view.h"

namespace choral::lora {

void LoRABatchProcessor::reserve(int64_t max_tokens) {
  for (Rows* rows : {&tokens_, &prompts_}) rows->mapper.reserve(max_tokens);
}

const LoRABatch& LoRABatchProcessor::prepare_batch(const platform::Context& ctx, const LoRAMapping& mapping,
                                                   std::span<const int32_t> stack_position) {
  return prepare(ctx, mapping.index_mapping, stack_position, mapping.is_prefill, tokens_);
}

const LoRABatch& LoRABatchProcessor::prepare_prompt_batch(const platform::Context& ctx, const LoRAMapping& mapping,
                                                          std::span<const int32_t> stack_position) {
  return prepare(ctx, mapping.prompt_mapping, stack_position, false, prompts_);
}

const LoRABatch& LoRABatchProcessor::prepare(const platform::Context& ctx, const LoRARows& mapping,
                                             std::span<const int32_t> stack_position, bool is_prefill, Rows& rows) {
  BatchLoRADataMapper& mapper = rows.mapper;
  mapper.map_sequence_to_adapters(mapping, stack_position);
  const auto place = [&](std::span<const int32_t> values, bool needed) {
    return needed ? platform::place_indices(ctx, values) : platform::IndexArray<int32_t>(values, nullptr);
  };
  const bool by_row = !mapper.no_lora(), by_sequence = by_row && is_prefill;
  rows.batch = {.indices = place(mapper.row_indices(), by_row),
                .sequences = {.starts = place(mapper.starts(), by_sequence),
                              .lengths = place(mapper.lengths(), by_sequence),
                              .slots = place(mapper.indices(), by_sequence),
                              .max_length = mapper.max_length(),
                              .rows = mapper.row_count()},
                .is_prefill = is_prefill,
                .no_lora = mapper.no_lora()};
  return rows.batch;
}

}  // namespace choral::lora
