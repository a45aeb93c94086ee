// Runs one step on one model: takes in what the step says of its requests, builds the flat batch once, forwards it, makes the
// logits of the rows that need them, samples. It knows of a request only what step_input.h told it.
// Engine thread; all arrays are reserved for the largest step, so a steady-state step allocates nothing.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/device_sampler.h"
#include "engine/sampler.h"
#include "engine/step_input.h"
#include "engine/step_output.h"
#include "lora/plan/lora_model_manager.h"
#include "models/model.h"

namespace choral::engine {

class ModelRunner {
 public:
  // A step holds at most `max_tokens` rows of `max_items` requests; an adapter brings at most `max_own_tokens`; a request has a
  // block table of each group of layers. `kv_parts`: of each group, see cache::KvGroups.
  ModelRunner(const platform::Context& ctx, const models::Model& model, lora::LoRAModelManager& lora, int64_t max_tokens,
              int64_t max_items, int64_t max_own_tokens, std::vector<int32_t> kv_parts);

  // Keeps a copy, until a step drops it. An error is that there is no memory for one.
  Status add_request(const NewRequest& request);
  // One that was added and that no step named.
  void drop_request(uint64_t id) { requests_.erase(id); }
  // From now on logits are computed, and nothing is made of them: another rank of the model does that.
  void leave_answers() { answers_ = false; }

  // out.items[i] answers input.items[i]. An error is the device's, or there was no memory: nothing of the step can be used, and
  // its requests may only be dropped.
  Status execute_model(const StepInput& input, StepOutput& out);

  // Requests it was told of and that were not dropped yet.
  size_t known_requests() const { return requests_.size(); }

 private:
  // The worker's copy of a request.
  struct KnownRequest {
    std::vector<int32_t> tokens;                     // prompt and outputs
    std::vector<std::vector<int32_t>> block_tables;  // of each group of layers
    int32_t prompt_count = 0;
    SamplingRule rule;
    Pooling pooling = Pooling::kNone;
    std::vector<double> gathered;  // of the hidden states, where is_of_all_tokens(pooling)
    int32_t gathered_tokens = 0;
  };

  void compute(const StepInput& input, StepOutput& out);
  void take_in(const StepInput& input);
  void build_batch(const StepInput& input);
  int64_t vocab_of(int64_t row) const;
  void add_rows(const StepItem& item, const KnownRequest& request);
  struct GroupRows;
  // Where a layer's blocks are the `part`-th of so many `parts` of the table's.
  void add_places(const StepItem& item, std::span<const int32_t> block_table, int32_t parts, int32_t part, GroupRows& rows);
  void find_sampled_rows(const StepInput& input, StepOutput& out);
  void add_sampled_rows(const StepInput& input, const StepItem& item, const KnownRequest& request, StepOutput& out);
  void sample_next_tokens(MatrixView<const float> hidden, bool on_device);
  MatrixView<float> copy_host_rows(MatrixView<const float> logits);
  bool is_sound(const StepItem& item, MatrixView<const float> hidden) const;
  void add_prompt_logprobs(const StepItem& item, const KnownRequest& request, MatrixView<const float> hidden, StepOutput& out);
  int32_t add_embedding(const StepItem& item, KnownRequest& request, MatrixView<const float> hidden,
                        StepOutput& out);                                                         // its width
  int32_t add_classes(const StepItem& item, MatrixView<const float> hidden, StepOutput& out);     // likewise
  int32_t add_row_logits(const StepItem& item, MatrixView<const float> hidden, StepOutput& out);  // how wide they are
  template <class Take>
  void for_logits_of(int32_t first_row, int32_t count, MatrixView<const float> hidden, Take&& take);

  const platform::Context& ctx_;
  const models::Model& model_;
  lora::LoRAModelManager& lora_;
  Sampler sampler_;
  DeviceSampler device_sampler_;
  int64_t steps_ = 0;
  bool answers_ = true;
  std::unordered_map<uint64_t, KnownRequest> requests_;

  // The flat batch. [max_tokens] and [max_items]
  layers::ForwardBatch batch_;
  std::vector<int32_t> token_ids_, positions_;
  // Where a group of layers keeps the rows, and what they see there.
  struct GroupRows {
    std::vector<int64_t> kv_slots;
    std::vector<kernels::AttentionSequence> sequences;
  };
  std::vector<int32_t> kv_parts_;  // of each group
  std::vector<GroupRows> groups_;  // of each part of each group
  std::vector<layers::KvRows> placed_groups_;
  std::vector<KnownRequest*> step_requests_;  // of the items
  // Rows that give a token, by their place in the batch too.
  std::vector<int32_t> sampled_places_;
  std::vector<SampledRow> sampled_rows_;
  std::vector<SampledRow> host_rows_;  // those of them that a device which samples leaves to the host
  std::vector<int32_t> slice_places_;  // of rows whose logits are wanted otherwise
  std::vector<float> pooled_;          // of one request's hidden states
};

}  // namespace choral::engine
