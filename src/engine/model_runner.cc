#include "engine/model_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "platform/host_view.h"

namespace choral::engine {
namespace {

// Logits of many rows of a request are made in slices: a row is a vocabulary wide.
constexpr int32_t kLogitsSliceRows = 32;

constexpr std::string_view kTooLarge = "the step cannot be computed; fewer --max-num-batched-tokens or --max-num-seqs need less";

void apply(const ListUpdate& update, std::span<const int32_t> values, std::vector<int32_t>& list) {
  CHORAL_CHECK(static_cast<size_t>(update.kept) <= list.size(), "a step keeps more of a request than the worker was told");
  list.resize(update.kept);
  list.insert(list.end(), values.begin(), values.end());
}

// A NaN stays one.
void gather(Pooling pooling, MatrixView<const float> rows, bool from_first, std::span<double> to) {
  if (from_first) std::fill(to.begin(), to.end(), pooling == Pooling::kMax ? -std::numeric_limits<double>::infinity() : 0.0);
  for (int64_t row = 0; row < rows.rows; ++row) {
    const float* values = rows.row(row);
    for (size_t i = 0; i < to.size(); ++i) {
      const double value = values[i];
      if (pooling == Pooling::kMean) to[i] += value;
      if (pooling == Pooling::kMax && (value > to[i] || std::isnan(value))) to[i] = value;
      if (pooling == Pooling::kFirst && from_first && row == 0) to[i] = value;
    }
  }
}

}  // namespace

ModelRunner::ModelRunner(const platform::Context& ctx, const models::Model& model, lora::LoRAModelManager& lora,
                         int64_t max_tokens, int64_t max_items, int64_t max_own_tokens, std::vector<int32_t> kv_parts)
    : ctx_(ctx),
      model_(model),
      lora_(lora),
      sampler_(ctx, model.vocab_size() + max_own_tokens),
      device_sampler_(ctx, model.vocab_size() + max_own_tokens, std::min(max_items * kMostLogitsRows, max_tokens)),
      kv_parts_(std::move(kv_parts)),
      groups_(std::accumulate(kv_parts_.begin(), kv_parts_.end(), 0)),
      placed_groups_(groups_.size()) {
  token_ids_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  for (auto& group : groups_) {
    group.kv_slots.reserve(max_tokens);
    group.sequences.reserve(max_items);
  }
  step_requests_.reserve(max_items);
  for (auto* rows : {&sampled_rows_, &host_rows_}) rows->reserve(max_items * kMostLogitsRows);
  sampled_places_.reserve(max_items * kMostLogitsRows);
  slice_places_.reserve(kLogitsSliceRows);
}

Status ModelRunner::execute_model(const StepInput& input, StepOutput& out) {
  for (const uint64_t id : input.dropped) requests_.erase(id);
  ctx_.memory.reset();
  ctx_.kernel.scratch.reset();
  const platform::StepFacts facts{.index = steps_++,
                                  .rows = input.total_tokens,
                                  .sequences = std::ssize(input.items),
                                  .has_prefill = input.has_prefill,
                                  .has_adapters = !input.segments.empty()};
  ctx_.session.begin_step(facts);
  Status computed = or_out_of_memory(kTooLarge, [&] {
    compute(input, out);
    return Status();
  });
  Status ended = ctx_.session.end_step(facts);
  out.host_copies = ctx_.session.host_copies();
  out.host_copied_bytes = ctx_.session.host_copied_bytes();
  if (computed.ok() || ended.ok()) return computed.ok() ? ended : computed;
  // Where the memory is a device's, it knows why there is no more.
  return ended.code() == Code::kResourceExhausted ? std::move(ended).while_(kTooLarge) : ended;
}

void ModelRunner::compute(const StepInput& input, StepOutput& out) {
  take_in(input);
  build_batch(input);
  out.clear();
  find_sampled_rows(input, out);
  const bool on_device = ctx_.session.samples();
  if (on_device) device_sampler_.place(sampled_rows_);
  const auto hidden = ctx_.make_matrix(input.total_tokens, model_.hidden_size());
  model_.forward(ctx_, batch_, hidden);
  out.items.resize(input.items.size());
  int64_t prompt_logprobs = 0;
  for (const auto& item : input.items) prompt_logprobs += item.prompt_logprobs_count;
  out.prompt_logprobs.reserve(prompt_logprobs);
  for (size_t i = 0; i < input.items.size(); ++i) {
    const auto& item = input.items[i];
    out.items[i] = {.token_count = item.logits_count,
                    .prompt_logprobs_count = item.prompt_logprobs_count,
                    .row_logits_count = item.row_logits_count};
    add_prompt_logprobs(item, *step_requests_[i], hidden, out);
    if (item.row_logits_count > 0) out.items[i].row_logits_width = add_row_logits(item, hidden, out);
    if (step_requests_[i]->pooling != Pooling::kNone)
      out.items[i].embedding_width = add_embedding(item, *step_requests_[i], hidden, out);
    if (item.logits_count == 0) out.items[i].is_sound = is_sound(item, hidden);
  }
  sample_next_tokens(hidden, on_device);
}

void ModelRunner::take_in(const StepInput& input) {
  step_requests_.clear();
  for (size_t i = 0; i < input.items.size(); ++i) {
    const auto& item = input.items[i];
    const auto found = requests_.find(item.id);
    CHORAL_CHECK(found != requests_.end(), "a step names a request that the worker was never told of");
    KnownRequest& request = found->second;
    apply(item.tokens, input.token_ids_of(item.tokens), request.tokens);
    const auto updates = input.block_updates_of(i);
    CHORAL_CHECK(updates.size() == kv_parts_.size(), "a step has a block table of each group of layers");
    for (size_t group = 0; group < kv_parts_.size(); ++group) {
      apply(updates[group], input.block_ids_of(updates[group]), request.block_tables[group]);
    }
    step_requests_.push_back(&request);
  }
}

Status ModelRunner::add_request(const NewRequest& request) {
  return or_out_of_memory("the request cannot be begun", [&] {
    KnownRequest known;
    const auto max_length = std::max(int64_t{request.max_length}, std::ssize(request.prompt));
    known.tokens.reserve(max_length);
    known.tokens.assign(request.prompt.begin(), request.prompt.end());
    known.block_tables.resize(kv_parts_.size());
    for (auto& table : known.block_tables) table.reserve(ceil_div(max_length, kernels::kKvBlockTokens));
    known.prompt_count = static_cast<int32_t>(request.prompt.size());
    known.rule = request.rule;
    known.pooling = request.pooling;
    if (is_of_all_tokens(known.pooling)) known.gathered.resize(model_.hidden_size());
    const bool is_new = requests_.emplace(request.id, std::move(known)).second;
    CHORAL_CHECK(is_new, "a request is added twice");
    return Status();
  });
}

void ModelRunner::build_batch(const StepInput& input) {
  token_ids_.clear();
  positions_.clear();
  for (auto& group : groups_) {
    group.kv_slots.clear();
    group.sequences.clear();
  }
  for (size_t i = 0; i < input.items.size(); ++i) add_rows(input.items[i], *step_requests_[i]);
  CHORAL_CHECK(token_ids_.size() == static_cast<size_t>(input.total_tokens), "a step's items are not its rows");
  CHORAL_CHECK(input.segments.empty() || input.segments.back().start + input.segments.back().length <= input.total_tokens,
               "a segment has rows that the step does not have");
  const Status planned = lora_.set_adapter_mapping(input.segments, {input.total_tokens, input.has_prefill});
  CHORAL_CHECK(planned.ok(), planned.message());  // residency registered them, the scheduler keeps to the slots
  const auto& lora = lora_.punica_wrapper();
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto& [slots, sequences] = groups_[group];
    placed_groups_[group] = {.slots = platform::place_indices(ctx_, std::span<const int64_t>(slots)),
                             .sequences = ctx_.session.place_sequences(sequences)};
  }
  batch_ = {.token_ids = platform::place_indices(ctx_, std::span<const int32_t>(token_ids_)),
            .positions = platform::place_indices(ctx_, std::span<const int32_t>(positions_)),
            .kv_groups = placed_groups_,
            .state_runs = input.state_runs,
            .lora = lora.no_lora() ? nullptr : &lora};
}

void ModelRunner::add_rows(const StepItem& item, const KnownRequest& request) {
  const int32_t end = item.first_token + item.token_count;
  CHORAL_CHECK(item.first_token >= 0 && static_cast<size_t>(item.first_row) == token_ids_.size() && item.logits_count >= 0 &&
                   item.logits_count <= item.token_count && static_cast<size_t>(end) <= request.tokens.size(),
               "a step's rows follow each other, and are tokens that the worker was told of");
  for (int32_t position = item.first_token; position < end; ++position) {
    token_ids_.push_back(request.tokens[position]);
    positions_.push_back(position);
  }
  for (size_t group = 0, rows = 0; group < kv_parts_.size(); ++group) {
    for (int32_t part = 0; part < kv_parts_[group]; ++part) {
      add_places(item, request.block_tables[group], kv_parts_[group], part, groups_[rows++]);
    }
  }
}

void ModelRunner::add_places(const StepItem& item, std::span<const int32_t> block_table, int32_t parts, int32_t part,
                             GroupRows& rows) {
  if (parts > 1) {
    const auto of_part = ctx_.kernel.scratch.make<int32_t>(block_table.size());
    std::transform(block_table.begin(), block_table.end(), of_part.begin(),
                   [&](int32_t block) { return block < 0 ? block : block * parts + part; });
    block_table = of_part;
  }
  const int32_t end = item.first_token + item.token_count;
  CHORAL_CHECK(static_cast<size_t>(end) <= block_table.size() * static_cast<size_t>(kernels::kKvBlockTokens),
               "a step's rows have places that the worker was told of");
  for (int32_t position = item.first_token; position < end; ++position) {
    const int64_t block = block_table[position / kernels::kKvBlockTokens];
    rows.kv_slots.push_back(block * kernels::kKvBlockTokens + position % kernels::kKvBlockTokens);
  }
  rows.sequences.push_back({.query_begin = item.first_row,
                            .query_count = item.token_count,
                            .context_tokens = item.first_token,
                            .block_table = block_table});
}

void ModelRunner::find_sampled_rows(const StepInput& input, StepOutput& out) {
  sampled_places_.clear();
  sampled_rows_.clear();
  size_t rows = 0, top = 0;
  for (size_t i = 0; i < input.items.size(); ++i) {
    const auto count = static_cast<size_t>(input.items[i].logits_count);
    rows += count;
    top += count * step_requests_[i]->rule.top_count();
  }
  out.tokens.resize(rows);
  out.top.resize(top);
  for (size_t i = 0; i < input.items.size(); ++i) add_sampled_rows(input, input.items[i], *step_requests_[i], out);
}

void ModelRunner::sample_next_tokens(MatrixView<const float> hidden, bool on_device) {
  if (sampled_rows_.empty()) return;
  const auto widest = std::max_element(sampled_rows_.begin(), sampled_rows_.end(),
                                       [](const SampledRow& a, const SampledRow& b) { return a.vocab < b.vocab; });
  const auto logits = ctx_.make_matrix(std::ssize(sampled_rows_), widest->vocab);
  model_.compute_logits(ctx_, batch_, hidden, sampled_places_, logits);
  if (!answers_) return;
  if (!on_device) return sampler_.sample(platform::host_copy(ctx_, logits), sampled_rows_);
  const auto for_host = copy_host_rows(logits);  // the device changes its own in place
  device_sampler_.sample(logits, sampled_rows_);
  if (for_host.rows > 0) sampler_.sample(for_host, host_rows_);
}

// Those of rows that the device does not sample.
MatrixView<float> ModelRunner::copy_host_rows(MatrixView<const float> logits) {
  host_rows_.clear();
  for (const SampledRow& row : sampled_rows_) {
    if (needs_host(*row.rule)) host_rows_.push_back(row);
  }
  if (host_rows_.empty()) return {};
  const auto count = std::ssize(host_rows_);
  const MatrixView<float> copies(ctx_.kernel.scratch.make<float>(static_cast<size_t>(count * logits.cols)).data(), count,
                                 logits.cols);
  for (int64_t i = 0, to = 0; i < logits.rows && to < count; ++i) {
    if (!needs_host(*sampled_rows_[static_cast<size_t>(i)].rule)) continue;
    const auto row = platform::host_copy(ctx_, logits.sub_rows(i, 1)).row_span(0);
    std::copy(row.begin(), row.end(), copies.row(to++));
  }
  return copies;
}

// With the tokens that the row's adapter brings.
int64_t ModelRunner::vocab_of(int64_t row) const {
  return model_.vocab_size() + (batch_.lora == nullptr ? 0 : batch_.lora->own_tokens(row));
}

void ModelRunner::add_sampled_rows(const StepInput& input, const StepItem& item, const KnownRequest& request, StepOutput& out) {
  const int32_t first = item.token_count - item.logits_count;
  for (int32_t row = first; row < item.token_count; ++row) {
    SampledToken& token = out.tokens[sampled_rows_.size()];
    if (!sampled_rows_.empty()) {
      const auto& before = sampled_rows_.back();
      token.top_begin = before.out->top_begin + static_cast<int32_t>(before.top.size());
    }
    sampled_places_.push_back(item.first_row + row);
    sampled_rows_.push_back({.rule = &request.rule,
                             .vocab = vocab_of(sampled_places_.back()),
                             .tokens = std::span(request.tokens).first(static_cast<size_t>(item.first_token + row) + 1),
                             .prompt_count = request.prompt_count,
                             .mask = input.mask_of(item, row - first),
                             .out = &token,
                             .top = std::span(out.top).subspan(token.top_begin, request.rule.top_count())});
  }
}

void ModelRunner::add_prompt_logprobs(const StepItem& item, const KnownRequest& request, MatrixView<const float> hidden,
                                      StepOutput& out) {
  // The row at position p speaks of the token at p + 1.
  const int32_t end = item.prompt_logprobs_begin + item.prompt_logprobs_count;
  CHORAL_CHECK(item.prompt_logprobs_count == 0 ||
                   (item.prompt_logprobs_begin >= item.first_token && end <= item.first_token + item.token_count &&
                    static_cast<size_t>(end) < request.tokens.size()),
               "log-probabilities are wanted of prompt tokens that follow the step's rows");
  int32_t position = item.prompt_logprobs_begin;
  for_logits_of(
      item.first_row + position - item.first_token, item.prompt_logprobs_count, hidden, [&](MatrixView<const float> logits) {
        for (int64_t i = 0; i < logits.rows; ++i) {
          const int32_t next = request.tokens[static_cast<size_t>(++position)];
          out.prompt_logprobs.push_back(sampler_.logprobs_of(logits.row_span(i), next, request.rule.prompt_logprobs.value_or(0)));
        }
      });
}

int32_t ModelRunner::add_row_logits(const StepItem& item, MatrixView<const float> hidden, StepOutput& out) {
  CHORAL_CHECK(item.row_logits_count <= item.token_count, "logits are wanted of rows that the step does not have");
  const int64_t width = vocab_of(item.first_row);
  out.row_logits.reserve(out.row_logits.size() + static_cast<size_t>(item.row_logits_count * width));
  for_logits_of(item.first_row + item.token_count - item.row_logits_count, item.row_logits_count, hidden,
                [&](MatrixView<const float> logits) {
                  for (int64_t i = 0; i < logits.rows; ++i) {
                    const auto row = logits.row_span(i);
                    out.row_logits.insert(out.row_logits.end(), row.begin(), row.end());
                  }
                });
  return static_cast<int32_t>(width);
}

// The last row has seen all rows before it, whose keys and values others may share.
bool ModelRunner::is_sound(const StepItem& item, MatrixView<const float> hidden) const {
  const platform::StepMark mark(ctx_);
  const auto last = platform::host_copy(ctx_, hidden.sub_rows(item.first_row + item.token_count - 1, 1)).row_span(0);
  return std::all_of(last.begin(), last.end(), [](float value) { return std::isfinite(value); });
}

// What is of all tokens goes over them one by one, so that the steps that they came in make no difference.
int32_t ModelRunner::add_embedding(const StepItem& item, KnownRequest& request, MatrixView<const float> hidden, StepOutput& out) {
  const bool of_all = is_of_all_tokens(request.pooling);
  if (!of_all && !item.wants_embedding) return 0;
  if (request.pooling == Pooling::kClasses) return add_classes(item, hidden, out);
  const platform::StepMark mark(ctx_);
  const int32_t count = of_all ? item.token_count : 1;  // rows that matter
  const auto rows = platform::host_copy(ctx_, hidden.sub_rows(item.first_row + item.token_count - count, count));
  if (of_all) {
    if (item.first_token == 0) request.gathered_tokens = 0;  // also when it was preempted and begins anew
    CHORAL_CHECK(request.gathered_tokens == item.first_token, "what is of every token is of each once");
    gather(request.pooling, rows, item.first_token == 0, request.gathered);
    request.gathered_tokens += item.token_count;
    if (!item.wants_embedding) return 0;
    const double divisor = request.pooling == Pooling::kMean ? request.gathered_tokens : 1;
    pooled_.clear();
    for (const double value : request.gathered) pooled_.push_back(static_cast<float>(value / divisor));
  } else {
    const auto last = rows.row_span(0);
    pooled_.assign(last.begin(), last.end());
  }
  model_.embedding_layers().apply(ctx_, pooled_);
  out.embeddings.insert(out.embeddings.end(), pooled_.begin(), pooled_.end());
  return static_cast<int32_t>(pooled_.size());
}

int32_t ModelRunner::add_classes(const StepItem& item, MatrixView<const float> hidden, StepOutput& out) {
  const platform::StepMark mark(ctx_);
  const auto logits = ctx_.make_matrix(1, model_.head().classes);
  const int32_t last = item.first_row + item.token_count - 1;
  model_.compute_logits(ctx_, batch_, hidden, {&last, 1}, logits);
  const auto values = platform::host_copy(ctx_, logits).row_span(0);
  out.embeddings.insert(out.embeddings.end(), values.begin(), values.end());
  return static_cast<int32_t>(logits.cols);
}

// Gives take() the logits of `count` rows of one request, slice by slice.
template <class Take>
void ModelRunner::for_logits_of(int32_t first_row, int32_t count, MatrixView<const float> hidden, Take&& take) {
  for (int32_t done = 0; done < count; done += kLogitsSliceRows) {
    const platform::StepMark mark(ctx_);
    const int32_t rows = std::min(kLogitsSliceRows, count - done);
    slice_places_.resize(rows);
    std::iota(slice_places_.begin(), slice_places_.end(), first_row + done);
    const int64_t vocab = vocab_of(slice_places_.front());  // one request has one adapter; rows before it acts are the base's
    const auto on_device = ctx_.make_matrix(rows, vocab);
    model_.compute_logits(ctx_, batch_, hidden, slice_places_, on_device);
    if (answers_) take(platform::host_copy(ctx_, on_device));
  }
}

}  // namespace choral::engine
