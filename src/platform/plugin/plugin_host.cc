#include "platform/plugin/plugin_host.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/log.h"
#include "base/thread_pool.h"

struct choral_status {
  int32_t code;
  std::string message;
};

namespace choral::platform {
namespace {

// Nothing is thrown across the border. A line of the log that finds no memory is lost; a status becomes this one, which nobody
// deletes.
choral_status& no_memory_for_a_status() {
  static choral_status kStatus{CHORAL_RESOURCE_EXHAUSTED, ""};
  return kStatus;
}

void log_line(int32_t level, const char* text) noexcept try {
  const auto line = plugin_text(text);
  switch (level) {
    case CHORAL_LOG_DEBUG: CHORAL_LOG(kDebug, "plug-in: {}", line); break;
    case CHORAL_LOG_INFO: CHORAL_LOG(kInfo, "plug-in: {}", line); break;
    case CHORAL_LOG_WARN: CHORAL_LOG(kWarn, "plug-in: {}", line); break;
    default: CHORAL_LOG(kError, "plug-in: {}", line); break;
  }
} catch (const std::bad_alloc&) {
}

// What no allocator gives is not asked for: a checking one takes the question for a fault of ours.
void* allocate(uint64_t size_bytes, uint64_t alignment) noexcept {
  const uint64_t aligned = std::max<uint64_t>(alignment, sizeof(void*));
  if (!std::has_single_bit(aligned) || size_bytes > uint64_t{PTRDIFF_MAX}) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, aligned, std::max<uint64_t>(size_bytes, 1)) == 0 ? memory : nullptr;
}

choral_status* status_create(int32_t code, const char* message) noexcept try {
  return new choral_status{code, plugin_text(message)};
} catch (const std::bad_alloc&) {
  return &no_memory_for_a_status();
}

void status_release(choral_status* status) noexcept {
  if (status != &no_memory_for_a_status()) delete status;
}

// Within a call of the host's a thread of the plug-in's may call while the pool computes for the host, and a body may call again:
// both are then served by the calling thread alone, which gives the same. Outside of one the threads are the host's alone, which
// may be about to end them.
choral_status* parallel_for(choral_pool* pool, int64_t count, int64_t grain, choral_range_fn body, void* context) noexcept {
  if (pool == nullptr) return status_create(CHORAL_INVALID_ARGUMENT, "parallel_for needs the pool of choral_device_config");
  if (pool->calls.load(std::memory_order_relaxed) == 0) {
    return status_create(
        CHORAL_INVALID_ARGUMENT,
        "parallel_for was called while the host calls nothing of this device, which would take the host's threads "
        "behind its back; call it within a call of the host's (other than read_row), or use threads of your own");
  }
  if (count <= 0) return nullptr;
  const auto run = [&](int64_t begin, int64_t end, int) { body(context, begin, end); };
  if (!pool->threads.try_parallel_for(count, std::max<int64_t>(grain, 1), run)) body(context, 0, count);
  return nullptr;
}

}  // namespace

const choral_host& plugin_host() {
  static const choral_host kHost{.header = CHORAL_HEADER(choral_host),
                                 .log = log_line,
                                 .allocate = allocate,
                                 .release = [](void* memory) noexcept { std::free(memory); },
                                 .status_create = status_create,
                                 .status_release = status_release,
                                 .parallel_for = parallel_for};
  return kHost;
}

std::string plugin_text(const char* text, size_t max_bytes) {
  std::string out(text == nullptr ? "" : std::string_view(text, strnlen(text, max_bytes)));
  if (out.size() == max_bytes) {
    constexpr std::string_view kCut = "…";
    size_t kept = max_bytes - kCut.size();
    while (kept > 0 && (static_cast<unsigned char>(out[kept]) & 0xC0) == 0x80) --kept;  // whole characters
    out.replace(kept, std::string::npos, kCut);
  }
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return out;
}

Status take_status(choral_status* status) {
  if (status == nullptr) return {};
  if (status == &no_memory_for_a_status()) return resource_exhausted("the host has no memory left for the plug-in's reason");
  const std::unique_ptr<choral_status> owned(status);
  const bool known = status->code > 0 && status->code <= static_cast<int32_t>(Code::kInternal);
  return Status(known ? static_cast<Code>(status->code) : Code::kInternal,
                status->message.empty() ? "the plug-in gave no reason" : std::move(status->message));
}

}  // namespace choral::platform
