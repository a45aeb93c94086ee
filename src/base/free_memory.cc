#include "base/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace choral {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A file of one number; -1 when it is absent or says "max".
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : -1;
}

// Of a file of lines "name number …"; -1 when there is none.
int64_t number_of(const char* path, std::string_view name) {
  std::ifstream file(path);
  std::string key, rest;
  for (int64_t value = 0; file >> key >> value && std::getline(file, rest);) {
    if (key == name) return value;
  }
  return -1;
}

int64_t kib_of(std::string_view name) {
  const int64_t kib = number_of("/proc/meminfo", name);
  return kib < 0 ? kUnlimited : kib * 1024;
}

}  // namespace

int64_t free_memory_bytes() {
  const int64_t available = kib_of("MemAvailable:");
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit <= 0 || used < 0) return available;
  // Pages of files count as used, but are given up for whoever wants memory.
  const auto pages = [](std::string_view name) { return std::max<int64_t>(0, number_of("/sys/fs/cgroup/memory.stat", name)); };
  const int64_t kept = std::max<int64_t>(0, used - pages("active_file") - pages("inactive_file"));
  return std::min(available, std::max<int64_t>(0, limit - kept));
}

int64_t total_memory_bytes() {
  const int64_t memory = kib_of("MemTotal:"), swap = kib_of("SwapTotal:");
  const int64_t total = memory == kUnlimited ? memory : memory + (swap == kUnlimited ? 0 : swap);
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  return limit > 0 ? std::min(total, limit) : total;
}

}  // namespace choral
