#include "engine/executor_facts.h"

#include "engine/layer_forms.h"

namespace choral::engine {

ExecutorFacts facts_of(const Worker& worker, std::string weights_digest) {
  const auto& model = *worker.loaded().model;
  return {.parameters = worker.loaded().parameters,
          .weight_bytes = worker.loaded().weight_bytes,
          .weights_digest = std::move(weights_digest),
          .vocab_size = model.vocab_size(),
          .head = model.head(),
          .sees_later = model.sees_later(),
          .embedding_size = model.embedding_layers().size(model.hidden_size()),
          .head_dim = model.kv_shapes().front().key_dim,
          .max_model_len = worker.max_model_len(),
          .kv_pool = worker.memory().kv.shape(),
          .kv_bytes = worker.kv_bytes(),
          .adapter_bytes = worker.memory().adapter_bytes,
          .kv_dtype = std::string(dtype_name(worker.kv_dtype())),
          .threads = worker.context().kernel.pool.size(),
          .cpu_level = worker.context().kernel.level,
          .lora_config = worker.lora_config(),
          .lora_targets = model.lora_targets(),
          .notes = worker.notes(),
          .layers = layer_forms(model.modules(), worker.context().kernel.level)};
}

}  // namespace choral::engine
