// What a model will take of the machine's memory and of the device's. It is decided when all tensors are found and before one is
// packed, so that it can be told, and refused, before the work. The KV pool gets this size, and adapters this budget.
// plan_memory() is pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"
#include "engine/kv_pool.h"

namespace choral::engine {

struct MachineMemory {
  int64_t free_bytes = 0;   // base/free_memory.h
  int64_t total_bytes = 0;  // swap too
  // What leaves and what allows no more; empty: there is no more in the machine, or the device.
  std::string free_limit = {}, total_limit = {};
  std::string cure = "end other programs";  // where too little is free

  // What of it a device may take that has no other memory.
  MachineMemory within(int64_t most_free, int64_t most, std::string_view device) const;
};

struct DeviceShare {
  bool has_weights = false;  // there is a device whose memory is not the machine's
  bool keeps_kv = false;
  MachineMemory memory = {};  // now; all zero where the device does not say
  bool says_memory() const { return memory.total_bytes > 0; }
};

// What a draft model takes beside: of the device's memory, where that has weights, else of the machine's.
struct DraftMemory {
  int64_t bytes = 0;        // weights, keys and values, adapters; 0: there is none
  int64_t taken_bytes = 0;  // of them, those that are no longer free
};

struct MemoryWishes {
  int64_t weight_bytes = 0;   // expected
  int64_t adapter_bytes = 0;  // --adapter-memory; 0 = decide here
  KvBudget kv;                // but for its default_bytes
  DeviceShare device = {};
  DraftMemory draft = {};
};

// What there is room for, which the ranks of a model must have alike.
struct MemoryRoom {
  int32_t blocks = 0, state_slots = 0;
  int64_t max_model_len = 0, adapter_bytes = 0;
};

struct MemoryPlan {
  int64_t weight_bytes = 0;  // as wished
  KvPlan kv = {};
  int64_t adapter_bytes = 0;   // the most that adapters may take
  MachineMemory machine = {};  // before anything was loaded
  DeviceShare device = {};
  DraftMemory draft = {};
  std::string warning = {};  // what was asked for is more than is free

  std::string text() const;  // in one line
  MemoryRoom room() const { return {kv.blocks, kv.state_slots, kv.max_model_len, adapter_bytes}; }
  // To no more than another rank has room for.
  void limit_to(const MemoryRoom& other);
};

MachineMemory machine_memory();  // now
// A limit that leaves less than the machine has, in words; empty where there is none.
std::string limit_note(const MachineMemory& machine);
// Default budget of adapters: a quarter of what the weights leave free, at most 8 GiB. Of the KV cache: a quarter, at most 4 GiB;
// of a device's memory, which no other program shares, three quarters: the rest is for steps and adapters' slots.
// resource_exhausted: the weights alone are more than there is, or than is free where the size of the KV cache was not given.
Result<MemoryPlan> plan_memory(std::span<const layers::KvShape> layers, int64_t model_positions, DType kv_dtype,
                               MemoryWishes wishes, const MachineMemory& machine);

// What a model will take, before it is asked how much there is.
struct ModelSizes {
  std::vector<layers::KvShape> layers;
  int64_t state_bytes = 0;   // of a sequence
  int64_t weight_bytes = 0;  // expected
  int64_t positions = 0;     // of a text

  // With another rank's share of the same model.
  void add(const ModelSizes& rank);
};

// The positions of a text that the options leave the model: a text of a model that sees later tokens is computed in one step.
int64_t text_positions(const models::Model& model, const EngineOptions& options);
ModelSizes sizes_of(const models::Model& model, int64_t expected_bytes, const EngineOptions& options);
// Tells the device what cache such a model will have. Before the plan.
void expect_cache(const ModelSizes& sizes, DType kv_dtype, platform::Session& session);
// The plan of such a model on this machine now.
Result<MemoryPlan> plan_model_memory(const ModelSizes& sizes, const EngineOptions& options, platform::Session& session,
                                     DType kv_dtype, const DraftMemory& draft = {});

}  // namespace choral::engine
