#include "engine/model_runner.h"

#include <algorithm>
#include <numeric>

#include "base/out_of_memory.h"
#include "platform/host_view.h"

namespace choral::engine {
namespace {

EngineRequest& engine_request(const sched::PlanItem& item) { return static_cast<EngineRequest&>(*item.request); }

// Logits of a prompt are made in slices: a row is a vocabulary wide.
constexpr int32_t kPromptLogitsRows = 32;

}  // namespace

ModelRunner::ModelRunner(const platform::Context& ctx, const models::Model& model, lora::LoRAModelManager& lora,
                         int64_t max_tokens, int64_t max_items)
    : ctx_(ctx), model_(model), lora_(lora), sampler_(ctx, model.vocab_size()) {
  token_ids_.reserve(static_cast<size_t>(max_tokens));
  positions_.reserve(static_cast<size_t>(max_tokens));
  kv_slots_.reserve(static_cast<size_t>(max_tokens));
  sequences_.reserve(static_cast<size_t>(max_items));
  logits_rows_.reserve(static_cast<size_t>(std::max<int64_t>(max_items, kPromptLogitsRows)));
  sampled_requests_.reserve(static_cast<size_t>(max_items));
  sampled_tokens_.reserve(static_cast<size_t>(max_items));
}

Status ModelRunner::execute_model(const sched::StepPlan& plan, StepOutput& out) {
  ctx_.memory.reset();
  ctx_.kernel.scratch.reset();
  platform::StepFacts facts{
      .index = steps_++, .rows = plan.total_tokens(), .sequences = static_cast<int64_t>(plan.items().size())};
  for (const auto& item : plan.items()) facts.has_prefill = facts.has_prefill || !item.is_decode;
  facts.has_adapters = !plan.segments().empty();
  ctx_.session.begin_step(facts);
  const Status computed =
      or_out_of_memory("the step cannot be computed; fewer --max-num-batched-tokens or --max-num-seqs need less", [&] {
        compute(plan, out);
        return Status();
      });
  const Status ended = ctx_.session.end_step(facts);
  return computed.ok() ? ended : computed;
}

void ModelRunner::compute(const sched::StepPlan& plan, StepOutput& out) {
  build_batch(plan);
  const auto hidden = ctx_.make_matrix(plan.total_tokens(), model_.hidden_size());
  model_.forward(ctx_, batch_, hidden);
  for (const auto& item : plan.items()) {
    if (item.needs_prompt_logprobs) add_prompt_logprobs(item, hidden);
  }
  sample_next_tokens(plan, hidden, out);
}

void ModelRunner::build_batch(const sched::StepPlan& plan) {
  token_ids_.clear();
  positions_.clear();
  kv_slots_.clear();
  sequences_.clear();
  for (const auto& item : plan.items()) add_item(item);
  const bool has_prefill =
      std::any_of(plan.items().begin(), plan.items().end(), [](const sched::PlanItem& item) { return !item.is_decode; });
  const Status planned = lora_.set_adapter_mapping(plan.segments(), {plan.total_tokens(), has_prefill});
  CHORAL_CHECK(planned.ok(), planned.message());  // residency registered them, the scheduler keeps to the slots
  const auto& lora = lora_.punica_wrapper();
  batch_ = {.token_ids = platform::place_indices(ctx_, std::span<const int32_t>(token_ids_)),
            .positions = platform::place_indices(ctx_, std::span<const int32_t>(positions_)),
            .kv_slots = platform::place_indices(ctx_, std::span<const int64_t>(kv_slots_)),
            .sequences = ctx_.session.place_sequences(sequences_),
            .lora = lora.no_lora() ? nullptr : &lora};
}

void ModelRunner::add_item(const sched::PlanItem& item) {
  const auto& request = *item.request;
  for (int32_t position = item.first_token; position < item.first_token + item.token_count; ++position) {
    token_ids_.push_back(request.tokens[static_cast<size_t>(position)]);
    positions_.push_back(position);
    const int64_t block = request.block_table[static_cast<int32_t>(position / kernels::kKvBlockTokens)];
    kv_slots_.push_back(block * kernels::kKvBlockTokens + position % kernels::kKvBlockTokens);
  }
  sequences_.push_back({.query_begin = item.first_row,
                        .query_count = item.token_count,
                        .context_tokens = item.first_token,
                        .block_table = request.block_table.ids()});
}

void ModelRunner::sample_next_tokens(const sched::StepPlan& plan, MatrixView<const float> hidden, StepOutput& out) {
  out.items.resize(plan.items().size());
  logits_rows_.clear();
  sampled_requests_.clear();
  sampled_tokens_.clear();
  for (size_t i = 0; i < plan.items().size(); ++i) {
    const auto& item = plan.items()[i];
    out.items[i].token = -1;
    if (!item.needs_logits) continue;
    logits_rows_.push_back(item.first_row + item.token_count - 1);
    sampled_requests_.push_back(&engine_request(item));
    sampled_tokens_.push_back(&out.items[i]);
  }
  if (logits_rows_.empty()) return;
  const auto logits = ctx_.make_matrix(static_cast<int64_t>(logits_rows_.size()), model_.vocab_size());
  model_.compute_logits(ctx_, batch_, hidden, logits_rows_, logits);
  const auto on_host = platform::host_copy(ctx_, logits);
  sampler_.sample(on_host, sampled_requests_, sampled_tokens_);
}

void ModelRunner::add_prompt_logprobs(const sched::PlanItem& item, MatrixView<const float> hidden) {
  const auto& request = engine_request(item);
  // The row at position p speaks of the token at p + 1, as long as that is a prompt token. What a preempted request computes
  // again has been said.
  const int32_t end = std::min(item.first_token + item.token_count, request.prompt_count - 1);
  for (int32_t first = std::max(item.first_token, request.prompt_done_count); first < end; first += kPromptLogitsRows) {
    const platform::StepMark mark(ctx_);
    const int32_t count = std::min(kPromptLogitsRows, end - first);
    logits_rows_.resize(static_cast<size_t>(count));
    std::iota(logits_rows_.begin(), logits_rows_.end(), item.first_row + first - item.first_token);
    const auto on_device = ctx_.make_matrix(count, model_.vocab_size());
    model_.compute_logits(ctx_, batch_, hidden, logits_rows_, on_device);
    const auto logits = platform::host_copy(ctx_, on_device);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t next = request.tokens[static_cast<size_t>(first + i + 1)];
      request.response->set_prompt_logprobs(first + i,
                                            sampler_.logprobs_of(logits.row_span(i), next, *request.params.prompt_logprobs));
    }
  }
}

}  // namespace choral::engine
