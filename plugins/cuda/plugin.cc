// The plug-in's table: what the host reads of it. Start reading here.
#include <iterator>

#include "device.h"
#include "plugin_table.h"

namespace choral_cuda {
namespace {

constexpr choral_memory_api kMemory = {CHORAL_HEADER(choral_memory_api),
                                       [](choral_device* device, uint64_t size_bytes, void** memory) -> choral_status* {
                                         CUDA_TRY(device->enter("allocate"));
                                         return device->allocate(size_bytes, memory);
                                       },
                                       [](choral_device* device, void* memory) { device->release(memory); },
                                       copy,
                                       stream_create,
                                       stream_destroy,
                                       stream_synchronize,
                                       [](choral_device* device, uint64_t* free, uint64_t* total) -> choral_status* {
                                         CUDA_TRY(device->enter("capacity"));
                                         return device->check(device->memory.free_bytes(free, total), "capacity");
                                       },
                                       /*copies_beside=*/1,
                                       /*reserved=*/0};

constexpr choral_weight_api kWeights = {CHORAL_HEADER(choral_weight_api), prepack, release_packed, read_row};

// They are compiled with the rest: the host builds models with them, and asks for them at the first forward pass.
constexpr const char* kFusedNames[] = {"add_rms_norm",   "add_rms_norm_bias", "qk_norm_rope", "rope_write_kv",
                                       "grouped_matmul", "lora_shrink",       "lora_expand"};

choral_status* load_fused_ops(choral_device*, const choral_op** first, int64_t* count) {
  *first = fused_ops().first;
  *count = fused_ops().count;
  return nullptr;
}

choral_plugin describe() {
  choral_plugin plugin{};
  plugin.header = CHORAL_HEADER(choral_plugin);
  plugin.name = CHORAL_CUDA_NAME;
  plugin.version = "0.1";
  plugin.description = "NVIDIA GPUs of compute capability 8.0 and newer";
  plugin.probe = probe;
  plugin.check_and_update_config = check_and_update_config;
  plugin.open_device = open_device;
  plugin.close_device = close_device;
  plugin.memory = &kMemory;
  plugin.weights = &kWeights;
  plugin.ops = ops().first;
  plugin.op_count = ops().count;
  plugin.supports_op = supports_op;
  plugin.fused_op_names = kFusedNames;
  plugin.fused_op_count = std::ssize(kFusedNames);
  plugin.load_fused_ops = load_fused_ops;
  plugin.workers = kWorkers;
  plugin.worker_count = std::ssize(kWorkers);
  plugin.measure_peaks = measure_peaks;
  return plugin;
}

}  // namespace
}  // namespace choral_cuda

const choral_plugin* choral_plugin_query(const choral_host* host) {
  static const choral_plugin plugin = choral_cuda::describe();
  if (host->header.abi_major != CHORAL_ABI_MAJOR || host->header.struct_size < sizeof(choral_host)) return nullptr;
  choral_cuda::host = host;
  return &plugin;
}
