#include "engine/memory_plan.h"

#include <algorithm>

#include "base/free_memory.h"
#include "base/size_text.h"

namespace choral::engine {
namespace {

// Thousands of small adapters, and room for the pages of the KV pool.
constexpr int64_t kMostForAdapters = int64_t{8} << 30;

Status check_weights(const MemoryWishes& wishes, const MachineMemory& machine) {
  if (wishes.weight_bytes > machine.total_bytes) {
    return resource_exhausted("the weights take {}, and this machine has {} in all; take a smaller or more quantised model",
                              size_text(wishes.weight_bytes), size_text(machine.total_bytes));
  }
  if (wishes.weight_bytes < machine.free_bytes || wishes.kv.requested_bytes > 0) return {};
  return resource_exhausted(
      "the weights take {}, and {} of memory is free: end other programs, take a smaller or more quantised model, or give "
      "--kv-cache-memory a size to try all the same",
      size_text(wishes.weight_bytes), size_text(machine.free_bytes));
}

}  // namespace

MachineMemory machine_memory() { return {.free_bytes = free_memory_bytes(), .total_bytes = total_memory_bytes()}; }

MemoryWishes memory_wishes(const EngineOptions& options, const platform::Session& session, int64_t expected_bytes) {
  return {.weight_bytes = platform::host_reads(session) ? expected_bytes : 0,
          .adapter_bytes = options.adapter_memory_bytes,
          .kv = {.requested_bytes = options.kv_cache_bytes,
                 .max_num_seqs = options.max_num_seqs,
                 .max_num_batched_tokens = options.max_num_batched_tokens,
                 .max_model_len = options.max_model_len}};
}

std::string MemoryPlan::text() const {
  return fmt::format("weights {}, KV cache {}, adapters up to {}, of {} free", size_text(weight_bytes), size_text(kv.bytes),
                     size_text(adapter_bytes), size_text(free_bytes));
}

Result<MemoryPlan> plan_memory(std::span<const layers::KvShape> layers, int64_t model_positions, DType kv_dtype,
                               MemoryWishes wishes, const MachineMemory& machine) {
  CHORAL_RETURN_IF_ERROR(check_weights(wishes, machine));
  const int64_t left = std::max<int64_t>(machine.free_bytes - wishes.weight_bytes, 0);
  wishes.kv.free_bytes = left;
  MemoryPlan plan{.weight_bytes = wishes.weight_bytes, .free_bytes = machine.free_bytes};
  CHORAL_TRY(plan.kv, plan_kv_pool(layers, model_positions, kv_dtype, wishes.kv));
  plan.adapter_bytes = wishes.adapter_bytes > 0 ? wishes.adapter_bytes : std::min(left / 4, kMostForAdapters);
  if (plan.kv.bytes > left - std::min(left, plan.adapter_bytes)) {
    plan.warning =
        fmt::format("{}: more than there is once all of it is used; lower --kv-cache-memory or --adapter-memory", plan.text());
  }
  return plan;
}

}  // namespace choral::engine
