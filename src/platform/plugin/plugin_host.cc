#include "platform/plugin/plugin_host.h"

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"

struct choral_status {
  int32_t code;
  std::string message;
};

namespace choral::platform {
namespace {

void log_line(int32_t level, const char* text) {
  const auto line = plugin_text(text);
  switch (level) {
    case CHORAL_LOG_DEBUG: CHORAL_LOG(kDebug, "plug-in: {}", line); break;
    case CHORAL_LOG_INFO: CHORAL_LOG(kInfo, "plug-in: {}", line); break;
    case CHORAL_LOG_WARN: CHORAL_LOG(kWarn, "plug-in: {}", line); break;
    default: CHORAL_LOG(kError, "plug-in: {}", line); break;
  }
}

void* allocate(uint64_t size_bytes, uint64_t alignment) {
  void* memory = nullptr;
  const size_t aligned = std::max<uint64_t>(alignment, sizeof(void*));
  return posix_memalign(&memory, aligned, size_bytes) == 0 ? memory : nullptr;
}

choral_status* status_create(int32_t code, const char* message) { return new choral_status{code, plugin_text(message)}; }

void parallel_for(choral_pool* pool, int64_t count, int64_t grain, choral_range_fn body, void* context) {
  if (count <= 0) return;
  if (pool == nullptr) return body(context, 0, count);
  reinterpret_cast<ThreadPool*>(pool)->parallel_for(count, std::max<int64_t>(grain, 1),
                                                    [&](int64_t begin, int64_t end, int) { body(context, begin, end); });
}

int64_t clock_ns() { return static_cast<int64_t>(now_s() * 1e9); }

}  // namespace

const choral_host& plugin_host() {
  static const choral_host kHost{.header = CHORAL_HEADER(choral_host),
                                 .log = log_line,
                                 .allocate = allocate,
                                 .release = [](void* memory) { std::free(memory); },
                                 .status_create = status_create,
                                 .parallel_for = parallel_for,
                                 .clock_ns = clock_ns};
  return kHost;
}

std::string plugin_text(const char* text, size_t max_bytes) {
  std::string out(text == nullptr ? "" : std::string_view(text, strnlen(text, max_bytes)));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return out;
}

Status take_status(choral_status* status) {
  if (status == nullptr) return {};
  const bool known = status->code > 0 && status->code <= static_cast<int32_t>(Code::kInternal);
  Status taken(known ? static_cast<Code>(status->code) : Code::kInternal,
               status->message.empty() ? "the plug-in gave no reason" : std::move(status->message));
  delete status;
  return taken;
}

}  // namespace choral::platform
