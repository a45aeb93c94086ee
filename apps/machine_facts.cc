#include "machine_facts.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/free_memory.h"
#include "base/thread_pool.h"

namespace choral::apps {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The text behind "key :" or "key:" of the first line that begins with it.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t whole_number(const std::string& text) {
  std::istringstream in(text);
  int64_t value = 0;
  return in >> value ? value : 0;
}

int64_t memory_kib(std::string_view key) { return whole_number(value_of("/proc/meminfo", key)) * 1024; }

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  facts.cpu_model = value_of("/proc/cpuinfo", "model name");
  cpu_set_t set;
  CPU_ZERO(&set);
  facts.cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  facts.physical_cores = ThreadPool::default_size();
  facts.smt = first_line("/sys/devices/system/cpu/smt/active") == "1";
  std::istringstream quota(first_line("/sys/fs/cgroup/cpu.max"));
  double granted = 0, period = 0;
  if (quota >> granted >> period && period > 0) facts.cpu_quota = granted / period;
  facts.memory_total = memory_kib("MemTotal");
  facts.memory_free = free_memory_bytes();
  const int64_t limit = whole_number(first_line("/sys/fs/cgroup/memory.max"));  // "max" reads as 0
  if (limit > 0) facts.memory_total = std::min(facts.memory_total, limit);
  const std::string modes = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (const size_t open = modes.find('['); open != modes.npos)
    facts.huge_pages = modes.substr(open + 1, modes.find(']') - open - 1);
  return facts;
}

}  // namespace choral::apps
