#include "base/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace choral {
namespace {

// A file of one number; -1 when it is absent or says "max".
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : -1;
}

}  // namespace

int64_t free_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  int64_t available = std::numeric_limits<int64_t>::max(), kib = 0;
  for (std::string key, unit; file >> key >> kib >> unit;) {
    if (key == "MemAvailable:") available = kib * 1024;
  }
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit > 0 && used >= 0) available = std::min(available, std::max<int64_t>(0, limit - used));
  return available;
}

}  // namespace choral
