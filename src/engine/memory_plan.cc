#include "engine/memory_plan.h"

#include <algorithm>

#include "base/free_memory.h"
#include "base/size_text.h"
#include "engine/state_pool.h"
#include "platform/platform.h"
#include "platform/session.h"

namespace choral::engine {
namespace {

// Thousands of small adapters, and room for the pages of the KV pool.
constexpr int64_t kMostForAdapters = int64_t{8} << 30, kMostForKv = int64_t{4} << 30;

Status check_weights(const MemoryWishes& wishes, const MachineMemory& memory, std::string_view whose) {
  const std::string weights = size_text(wishes.weight_bytes);
  if (wishes.weight_bytes > memory.total_bytes) {
    const std::string all = size_text(memory.total_bytes);
    if (memory.total_limit.empty()) {
      return resource_exhausted("the weights take {}, and {} has {} in all; take a smaller or more quantised model", weights,
                                whose, all);
    }
    return resource_exhausted("the weights take {}, and {} allows {} in all; raise it, or take a smaller or more quantised model",
                              weights, memory.total_limit, all);
  }
  if (wishes.weight_bytes < memory.free_bytes || wishes.kv.requested_bytes > 0) return {};
  const auto free = memory.free_limit.empty() ? fmt::format("{} of {}'s memory is free", size_text(memory.free_bytes), whose)
                                              : fmt::format("{} leaves {}", memory.free_limit, size_text(memory.free_bytes));
  return resource_exhausted(
      "the weights take {}, and {}: {}, take a smaller or more quantised model, or give --kv-cache-memory a size to try all the "
      "same",
      weights, free, memory.cure);
}

int64_t left_of(const MachineMemory& memory, int64_t taken_bytes) {
  return std::max<int64_t>(memory.free_bytes - taken_bytes, 0);
}

}  // namespace

MachineMemory machine_memory() {
  FreeMemory memory = free_memory();
  return {.free_bytes = memory.least_free.free_bytes,
          .total_bytes = memory.least_total.total_bytes,
          .free_limit = std::move(memory.least_free.name),
          .total_limit = std::move(memory.least_total.name),
          .cure = std::move(memory.least_free.cure)};
}

MachineMemory MachineMemory::within(int64_t most_free, int64_t most, std::string_view device) const {
  MachineMemory limited = *this;
  if (most < total_bytes) {
    limited.total_bytes = most;
    limited.total_limit = fmt::format("the device {}", device);
  }
  if (most_free < free_bytes) {
    limited.free_bytes = most_free;
    limited.free_limit = fmt::format("the device {}", device);
    limited.cure = "it takes no more of the machine's memory";
  }
  return limited;
}

std::string limit_note(const MachineMemory& machine) {
  if (machine.free_limit.empty()) return "";
  return fmt::format("{} leaves {}, less than the machine has free: the KV cache and adapters get shares of that; {}",
                     machine.free_limit, size_text(machine.free_bytes), machine.cure);
}

std::string MemoryPlan::text() const {
  const auto weights = fmt::format("{}weights {}", draft.bytes > 0 ? fmt::format("draft model {}, ", size_text(draft.bytes)) : "",
                                   size_text(weight_bytes)),
             cache = fmt::format("KV cache {}", size_text(kv.bytes)),
             adapters = fmt::format("{}adapters up to {}, of {} free{}",
                                    kv.state_bytes > 0 ? fmt::format("states {}, ", size_text(kv.state_bytes)) : "",
                                    size_text(adapter_bytes), size_text(machine.free_bytes),
                                    machine.free_limit.empty() ? "" : fmt::format(" ({})", machine.free_limit));
  if (!device.has_weights) return fmt::format("{}, {}, {}", weights, cache, adapters);
  const auto there =
      device.says_memory() ? fmt::format("of {} free", size_text(device.memory.free_bytes)) : "of a size it does not say";
  if (device.keeps_kv) return fmt::format("on the device {}, {}, {}; here {}", weights, cache, there, adapters);
  return fmt::format("on the device {}, {}; here {}, {}", weights, there, cache, adapters);
}

void MemoryPlan::limit_to(const MemoryRoom& other) {
  kv.blocks = std::min(kv.blocks, other.blocks);
  kv.state_slots = std::min(kv.state_slots, other.state_slots);
  kv.max_model_len = std::min(kv.max_model_len, other.max_model_len);
  adapter_bytes = std::min(adapter_bytes, other.adapter_bytes);
}

Result<MemoryPlan> plan_memory(std::span<const layers::KvShape> layers, int64_t model_positions, DType kv_dtype,
                               MemoryWishes wishes, const MachineMemory& machine) {
  const DeviceShare& device = wishes.device;
  if (!device.has_weights) CHORAL_RETURN_IF_ERROR(check_weights(wishes, machine, "this machine"));
  if (device.says_memory()) CHORAL_RETURN_IF_ERROR(check_weights(wishes, device.memory, "the device"));
  const int64_t taken = wishes.weight_bytes + wishes.draft.bytes - wishes.draft.taken_bytes;
  const int64_t here = left_of(machine, device.has_weights ? 0 : taken);
  const int64_t there = left_of(device.memory, taken);
  const bool is_kv_there = device.says_memory() && device.keeps_kv;
  wishes.kv.default_bytes = is_kv_there ? there / 4 * 3 : std::min(here / 4, kMostForKv);
  wishes.kv.most_state_bytes = here / 4;
  MemoryPlan plan{.weight_bytes = wishes.weight_bytes, .machine = machine, .device = device, .draft = wishes.draft};
  CHORAL_TRY(plan.kv, plan_kv_pool(layers, model_positions, kv_dtype, wishes.kv));
  plan.adapter_bytes = wishes.adapter_bytes > 0 ? wishes.adapter_bytes : std::min(here / 4, kMostForAdapters);
  const int64_t kept_here = plan.adapter_bytes + plan.kv.state_bytes;
  const int64_t room_for_kv = is_kv_there ? there : here - std::min(here, kept_here);
  if (plan.kv.bytes > room_for_kv || (is_kv_there && kept_here > here)) {
    plan.warning =
        fmt::format("{}: more than there is once all of it is used; lower --kv-cache-memory or --adapter-memory", plan.text());
  }
  return plan;
}

int64_t text_positions(const models::Model& model, const EngineOptions& options) {
  return model.sees_later() ? std::min<int64_t>(model.max_positions(), options.max_num_batched_tokens) : model.max_positions();
}

ModelSizes sizes_of(const models::Model& model, int64_t expected_bytes, const EngineOptions& options) {
  return {.layers = model.kv_shapes(),
          .state_bytes = state_bytes(model),
          .weight_bytes = expected_bytes,
          .positions = text_positions(model, options)};
}

void ModelSizes::add(const ModelSizes& rank) {
  for (size_t i = 0; i < layers.size(); ++i) layers[i].kv_heads += rank.layers[i].kv_heads;
  state_bytes += rank.state_bytes;
  weight_bytes += rank.weight_bytes;
}

void expect_cache(const ModelSizes& sizes, DType kv_dtype, platform::Session& session) {
  for (const auto& shape : sizes.layers) {
    session.expect_cache({kv_dtype, shape.kv_heads, shape.key_dim, shape.value_dim, shape.values_in_keys});
  }
}

Result<MemoryPlan> plan_model_memory(const ModelSizes& sizes, const EngineOptions& options, platform::Session& session,
                                     DType kv_dtype, const DraftMemory& draft) {
  MemoryWishes wishes{.weight_bytes = sizes.weight_bytes,
                      .adapter_bytes = options.adapter_memory_bytes,
                      .kv = {.requested_bytes = options.kv_cache_bytes,
                             .max_num_seqs = options.max_num_seqs,
                             .max_num_batched_tokens = options.max_num_batched_tokens,
                             .max_model_len = options.max_model_len,
                             .state_bytes = sizes.state_bytes,
                             .keeps_prefixes = options.enable_prefix_caching},
                      .draft = draft};
  MachineMemory machine = machine_memory();
  if (!platform::host_reads(session)) {
    CHORAL_TRY(const auto memory, session.device_memory());
    if (memory && memory->is_hosts) {
      machine = machine.within(memory->free_bytes, memory->total_bytes, session.platform().name());
    } else {
      wishes.device = {.has_weights = true, .keeps_kv = session.keeps_kv()};
      if (memory) wishes.device.memory = {memory->free_bytes, memory->total_bytes};
    }
  }
  return plan_memory(sizes.layers, sizes.positions, kv_dtype, std::move(wishes), machine);
}

}  // namespace choral::engine
