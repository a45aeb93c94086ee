#include "engine/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/size_text.h"
#include "cache/kv_pool_size.h"

namespace choral::engine {
namespace {

// `longest` tokens is the most that a sequence has: a wider window hides nothing.
cache::KVTokenLayout layout_of(const layers::KvShape& shape, DType dtype, int64_t longest) {
  return {.kv_heads = static_cast<uint64_t>(shape.kv_heads),
          .key_dim = static_cast<uint64_t>(shape.key_dim),
          .value_dim = static_cast<uint64_t>(kernels::kv_value_stride(shape.stored_value_dim())),
          .element_bytes = static_cast<uint64_t>(row_bytes(dtype, 1)),
          .scale_bytes_per_head = static_cast<uint64_t>(kernels::kv_scale_bytes(dtype)),
          .window = static_cast<int32_t>(shape.window < longest ? shape.window : 0)};
}

// The most tokens, up to `wanted`, of one sequence for which the pool has blocks.
int64_t longest_sequence(const cache::KvPoolShape& pool, int64_t step_tokens, int64_t wanted) {
  int64_t fits = 0;
  for (int64_t beyond = wanted + 1; beyond - fits > 1;) {
    const int64_t length = fits + (beyond - fits) / 2;
    (pool.most_blocks(length, step_tokens) <= pool.blocks ? fits : beyond) = length;
  }
  return fits;
}

std::string window_note(const KvPlan& plan, int64_t step_tokens, int64_t block_bytes, int64_t all_bytes) {
  const auto shape = plan.shape();
  const int64_t held = shape.most_blocks(plan.max_model_len, step_tokens) * block_bytes;
  const int64_t all = ceil_div(plan.max_model_len, kernels::kKvBlockTokens) * all_bytes;
  return fmt::format(
      "layers with a window give back what it has passed: a sequence of {} tokens holds {} of the KV cache instead of {}",
      plan.max_model_len, size_text(held), size_text(all));
}

constexpr int64_t kKeptStates = 32;

// Every running sequence has a place for its states, and there are as many again, or some, for what is kept of prefixes; as long
// as memory for that is left. One there always is.
void plan_states(const KvBudget& budget, KvPlan& plan) {
  if (budget.state_bytes == 0) return;
  const int64_t room = std::max<int64_t>(budget.most_state_bytes / budget.state_bytes, 1);
  const int64_t kept = budget.keeps_prefixes ? std::max<int64_t>(budget.max_num_seqs, kKeptStates) : 0;
  plan.state_slots = static_cast<int32_t>(std::min(room, budget.max_num_seqs + kept));
  plan.state_bytes = plan.state_slots * budget.state_bytes;
  plan.notes.push_back(fmt::format("states: {} places of {} for running requests and for prefixes ({})", plan.state_slots,
                                   size_text(budget.state_bytes), size_text(plan.state_bytes)));
  if (plan.state_slots < budget.max_num_seqs) {
    plan.notes.push_back(
        fmt::format("at most {} requests run at a time instead of --max-num-seqs {}: memory for more states is "
                    "not free",
                    plan.state_slots, budget.max_num_seqs));
  }
}

}  // namespace

Result<DType> parse_kv_dtype(std::string_view name) {
  if (name == "auto") return DType::kF16;  // half of float32's memory and reads, at a loss that answers do not show
  auto type = parse_dtype(name);
  if (type.ok() && kernels::is_kv_dtype(*type)) return type;
  return invalid_argument("--kv-cache-dtype {}: choose auto, float32, bfloat16, float16 or int8", name);
}

cache::KvGroups kv_groups_of(std::span<const layers::KvShape> layers, DType dtype, int64_t longest) {
  std::vector<cache::KVTokenLayout> layouts;
  for (const auto& shape : layers) layouts.push_back(layout_of(shape, dtype, longest));
  return cache::group_layers(layouts);
}

Result<KvPlan> plan_kv_pool(std::span<const layers::KvShape> layers, int64_t model_positions, DType dtype,
                            const KvBudget& budget) {
  const int64_t wanted_len = budget.max_model_len > 0 ? budget.max_model_len : model_positions;
  if (wanted_len > model_positions) {
    return invalid_argument("--max-model-len {} exceeds the {} positions that the model was made for", wanted_len,
                            model_positions);
  }
  std::vector<cache::KVTokenLayout> layouts;
  for (const auto& shape : layers) layouts.push_back(layout_of(shape, dtype, wanted_len));
  KvPlan plan;
  plan.groups = cache::group_layers(layouts);
  CHORAL_TRY(const uint64_t checked_bytes,
             cache::kv_block_bytes(plan.groups.arrays, static_cast<int32_t>(kernels::kKvBlockTokens)));
  const auto block_bytes = static_cast<int64_t>(checked_bytes);
  plan.blocks = 1;
  const int64_t blocks_of_one = plan.shape().most_blocks(wanted_len, budget.max_num_batched_tokens);
  const int64_t most_blocks = std::min<int64_t>(blocks_of_one * budget.max_num_seqs, int64_t{1} << 28);
  int64_t bytes = budget.requested_bytes;
  if (bytes == 0) bytes = budget.default_bytes;

  plan.blocks = static_cast<int32_t>(std::min(bytes / block_bytes, most_blocks));
  plan.bytes = plan.blocks * block_bytes;
  plan.max_model_len = longest_sequence(plan.shape(), budget.max_num_batched_tokens, wanted_len);
  if (plan.max_model_len < wanted_len && (budget.max_model_len > 0 || plan.max_model_len == 0)) {
    return resource_exhausted(
        "a KV cache of {} holds {} tokens, but --max-model-len {} needs {}; lower it, or raise --kv-cache-memory",
        size_text(bytes), plan.max_model_len, wanted_len, size_text(blocks_of_one * block_bytes));
  }
  plan.notes.push_back(fmt::format("KV cache: {} blocks of {} tokens, {} ({}{})", plan.blocks, kernels::kKvBlockTokens,
                                   dtype_name(dtype), size_text(plan.bytes),
                                   budget.requested_bytes > 0 ? "" : ", chosen from free memory; --kv-cache-memory changes it"));
  if (plan.shape().windows != std::vector<int32_t>{0}) {
    CHORAL_TRY(const uint64_t all, cache::kv_block_bytes(layouts, static_cast<int32_t>(kernels::kKvBlockTokens)));
    plan.notes.push_back(window_note(plan, budget.max_num_batched_tokens, block_bytes, static_cast<int64_t>(all)));
  }
  plan_states(budget, plan);
  if (plan.max_model_len < wanted_len) {
    plan.notes.push_back(
        fmt::format("max_model_len is {} instead of the model's {}, so that one sequence fits the KV cache; "
                    "--kv-cache-memory raises it",
                    plan.max_model_len, wanted_len));
  }
  return plan;
}

cache::KvPoolShape KvPlan::shape() const {
  return {.blocks = blocks,
          .block_tokens = static_cast<int32_t>(kernels::kKvBlockTokens),
          .windows = groups.windows,
          .state_slots = state_slots};
}

Result<KvPool> KvPool::make(platform::Session& session, models::Model& model, DType dtype, const KvPlan& plan) {
  KvPool pool;
  const auto shapes = model.kv_shapes();
  // The first layer that has its blocks in an array makes it. Of others the blocks are as large, or so many parts of them.
  struct Memory {
    std::byte *keys = nullptr, *values = nullptr;
  };
  std::vector<Memory> arrays(plan.groups.arrays.size());
  const auto& parts = plan.groups.parts;
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    const layers::KvShape& shape = shapes[layer];
    const auto [group, array, part] = plan.groups.layers[layer];
    const int32_t blocks = plan.blocks * parts[group];
    auto& memory = arrays[array];
    if (memory.keys == nullptr) {
      const auto allocate = [&](int64_t block_bytes, std::byte*& to) -> Status {
        CHORAL_TRY(auto tensor, session.allocate_kv(dtype, {blocks, block_bytes / row_bytes(dtype, 1)}));
        to = tensor.data();
        pool.tensors_.push_back(std::move(tensor));
        return {};
      };
      CHORAL_RETURN_IF_ERROR(allocate(kernels::kv_key_block_bytes(dtype, shape.kv_heads, shape.key_dim), memory.keys));
      if (!shape.values_in_keys) {
        CHORAL_RETURN_IF_ERROR(allocate(kernels::kv_value_block_bytes(dtype, shape.kv_heads, shape.value_dim), memory.values));
      }
    }
    const kernels::KvCacheView view{.keys = memory.keys,
                                    .values = memory.values,
                                    .dtype = dtype,
                                    .num_blocks = blocks,
                                    .kv_heads = shape.kv_heads,
                                    .head_dim = shape.key_dim,
                                    .v_head_dim = shape.value_dim};
    const int32_t rows = std::accumulate(parts.begin(), parts.begin() + group, 0) + part;
    model.bind_kv_cache(static_cast<int64_t>(layer), {.cache = view, .group = rows});
  }
  return pool;
}

int64_t KvPool::size_bytes() const {
  int64_t total = 0;
  for (const auto& tensor : tensors_) total += tensor.size_bytes();
  return total;
}

}  // namespace choral::engine
