// What this device says to a configuration, what it serves, and its worker.
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "device.h"
#include "plugin_table.h"
#include "structs.h"

namespace choral_cuda {
namespace {

bool is_on_cache(std::string_view name) { return name == "write_kv" || name == "paged_attention" || name == "rope_write_kv"; }

bool is_cache_type(int32_t dtype) { return dtype == CHORAL_F32 || dtype == CHORAL_F16 || dtype == CHORAL_BF16; }

choral_status* on_start(choral_device* device) {
  uint64_t free = 0, total = 0;
  CUDA_TRY(device->enter("on_start"));
  CUDA_TRY(device->check(device->memory.free_bytes(&free, &total), "on_start"));
  log(CHORAL_LOG_INFO, "%d multiprocessors, %s of %s free; CUDA graphs are %s", device->sm_count, size_text(free).c_str(),
      size_text(total).c_str(), device->uses_graphs ? "on" : "off (CHORAL_CUDA_GRAPHS=0)");
  return nullptr;
}

// A prompt does not come again.
choral_status* begin_step(choral_device* device, choral_stream* stream, const choral_step* given) {
  const auto step = read<choral_step>(given);
  if (device->uses_graphs && step.has_prefill == 0) stream->graphs.begin_step();
  return nullptr;
}

choral_status* end_step(choral_device* device, choral_stream* stream, const choral_step*) {
  CUDA_TRY(device->enter("end_step"));
  stream->graphs.end_step(device->launch_on(stream));
  return nullptr;
}

void on_stop(choral_device* device) {
  uint64_t most = 0;
  if (cudaSetDevice(device->ordinal) == cudaSuccess && device->memory.most_bytes(&most) == cudaSuccess) {
    log(CHORAL_LOG_INFO, "at most %s of the device's memory was in use (%llu bytes)", size_text(most).c_str(),
        static_cast<unsigned long long>(most));
  }
  StepGraphs::Counts all;
  for (const choral_stream* stream : device->streams) {
    all.launched += stream->graphs.counts().launched;
    all.captured += stream->graphs.counts().captured;
  }
  log(CHORAL_LOG_INFO, "%lld CUDA graphs were captured, and launched %lld times", static_cast<long long>(all.captured),
      static_cast<long long>(all.launched));
}

}  // namespace

choral_status* check_and_update_config(choral_config* given) {
  auto config = read<choral_config>(given);
  if (std::strcmp(config.worker_cls, "auto") == 0) std::snprintf(config.worker_cls, sizeof config.worker_cls, "%s", kWorkerName);
  write(given, config);
  return nullptr;
}

choral_status* supports_op(choral_device*, const choral_op_query* given, choral_support* answer) {
  const auto query = read<choral_op_query>(given);
  choral_support support{};
  support.verdict = CHORAL_YES;
  if (query.version != 1) {
    support.verdict = CHORAL_NO;
    std::snprintf(support.reason, sizeof support.reason, "%s is known in version 1, not in %d", query.name, query.version);
  } else if (is_on_cache(query.name) && !is_cache_type(query.kv_dtype)) {
    support.verdict = CHORAL_NO;
    std::snprintf(support.reason, sizeof support.reason, "the cache holds float32, float16 or bfloat16, not element type %d",
                  query.kv_dtype);
  }
  write(answer, support);
  return nullptr;
}

const choral_worker_class kWorkers[1] = {
    {CHORAL_HEADER(choral_worker_class), kWorkerName, on_start, begin_step, end_step, on_stop}};

}  // namespace choral_cuda
