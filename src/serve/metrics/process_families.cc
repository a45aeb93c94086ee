#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "serve/metrics/families.h"

namespace choral::serve {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// Field `number` of /proc/self/stat as proc(5) counts them, from the third on: the second is a name that may hold anything.
std::optional<double> stat_field(const std::string& stat, int number) {
  size_t at = stat.rfind(')');
  for (int field = 3; at != stat.npos && field <= number; ++field) at = stat.find(' ', at + 1);
  double value = 0;
  if (at == stat.npos || std::sscanf(stat.c_str() + at, "%lf", &value) != 1) return std::nullopt;
  return value;
}

std::optional<double> open_files(const SystemFiles& files) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(files.path("/proc/self/fd").c_str()), &closedir);
  if (folder == nullptr) return std::nullopt;
  double count = -1;  // the folder itself
  while (const auto* entry = readdir(folder.get())) count += entry->d_name[0] != '.';
  return count;
}

}  // namespace

std::vector<MetricFamily> process_families(const SystemFiles& files) {
  std::vector<MetricFamily> out;
  const auto add = [&out](const char* name, const char* help, MetricType type, std::optional<double> value) {
    if (!value) return;
    MetricFamily family{name, help, type, std::vector<prometheus::ClientMetric>(1)};
    auto& metric = family.metric.front();
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
    out.push_back(std::move(family));
  };
  const std::string stat = files.text("/proc/self/stat");
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto user = stat_field(stat, 14), system = stat_field(stat, 15), start = stat_field(stat, 22);
  const auto boot = files.number_of("/proc/stat", "btime");
  const auto memory = stat_field(stat, 23), pages = stat_field(stat, 24);
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  add("process_cpu_seconds_total", "Processor time of this process.", MetricType::Counter,
      user && system ? std::optional((*user + *system) / ticks) : std::nullopt);
  add("process_start_time_seconds", "When this process began, in Unix time.", MetricType::Gauge,
      start && boot ? std::optional(static_cast<double>(*boot) + *start / ticks) : std::nullopt);
  add("process_resident_memory_bytes", "Memory of this process that is in RAM.", MetricType::Gauge,
      pages ? std::optional(*pages * page) : std::nullopt);
  add("process_virtual_memory_bytes", "Addresses of this process.", MetricType::Gauge, memory);
  add("process_open_fds", "Files and sockets that are open.", MetricType::Gauge, open_files(files));
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  add("process_max_fds", "The most that may be open.", MetricType::Gauge,
      limited ? std::optional(static_cast<double>(limit.rlim_cur)) : std::nullopt);
  return out;
}

}  // namespace choral::serve
