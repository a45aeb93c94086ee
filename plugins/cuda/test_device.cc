#include "test_device.h"

#include <algorithm>
#include <memory>
#include <utility>

struct choral_status {
  choral_cuda::TestStatus kept;
};

namespace choral_cuda {
namespace {

std::vector<std::string> log_lines;

choral_status* status_create(int32_t code, const char* message) { return new choral_status{{code, message}}; }

choral_status* parallel_for(choral_pool*, int64_t count, int64_t grain, choral_range_fn body, void* context) {
  for (int64_t begin = 0; begin < count; begin += grain) body(context, begin, std::min(begin + grain, count));
  return nullptr;
}

const choral_host kHost = {CHORAL_HEADER(choral_host),
                           [](int32_t, const char* line) { log_lines.emplace_back(line); },
                           [](uint64_t size_bytes, uint64_t) -> void* { return std::malloc(size_bytes); },
                           [](void* memory) { std::free(memory); },
                           status_create,
                           [](choral_status* status) { delete status; },
                           parallel_for};

}  // namespace

TestStatus seen(choral_status* status) {
  const std::unique_ptr<choral_status> owned(status);
  return owned == nullptr ? TestStatus() : owned->kept;
}

std::vector<std::string> take_log() { return std::exchange(log_lines, {}); }

const choral_plugin& plugin() {
  static const choral_plugin* one = choral_plugin_query(&kHost);
  return *one;
}

std::string probe_reason() {
  choral_probe probe{};
  probe.header = CHORAL_HEADER(choral_probe);
  EXPECT_FINE(plugin().probe(&probe));
  EXPECT_EQ(probe.device_count == 0, probe.reason[0] != '\0');
  return probe.reason;
}

int device_count() {
  choral_probe probe{};
  probe.header = CHORAL_HEADER(choral_probe);
  EXPECT_FINE(plugin().probe(&probe));
  return probe.device_count;
}

OpenDevice::OpenDevice(int index) {
  choral_device_config config{};
  config.header = CHORAL_HEADER(choral_device_config);
  config.index = index;
  EXPECT_FINE(plugin().open_device(&config, &handle));
  if (handle != nullptr) EXPECT_FINE(plugin().memory->stream_create(handle, &stream));
}

OpenDevice::~OpenDevice() {
  while (!memory_.empty()) release(memory_.back());
  if (handle != nullptr) plugin().close_device(handle);
}

void* OpenDevice::allocate(uint64_t bytes) {
  void* memory = nullptr;
  EXPECT_FINE(plugin().memory->allocate(handle, bytes, &memory));
  memory_.push_back(memory);
  return memory;
}

void OpenDevice::release(void* memory) {
  std::erase(memory_, memory);
  plugin().memory->release(handle, memory);
}

TestStatus OpenDevice::copy(int32_t kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                            int64_t rows) {
  const choral_copy what{CHORAL_HEADER(choral_copy), kind, 0, to, to_pitch, from, from_pitch, row_bytes, rows};
  return seen(plugin().memory->copy(handle, stream, &what));
}

TestStatus OpenDevice::run(const std::string& op, const void* args) {
  const choral_op* fused = nullptr;
  int64_t fused_count = 0;
  EXPECT_FINE(plugin().load_fused_ops(handle, &fused, &fused_count));
  for (const auto& [first, count] : {std::pair{plugin().ops, plugin().op_count}, {fused, fused_count}}) {
    for (int64_t i = 0; i < count; ++i) {
      if (first[i].name == op) return seen(first[i].run(handle, stream, args));
    }
  }
  return {CHORAL_INTERNAL, "the table has no " + op};
}

choral_matrix matrix(void* data, int64_t rows, int64_t cols) { return {data, rows, cols, cols, CHORAL_F32, 0}; }

}  // namespace choral_cuda
