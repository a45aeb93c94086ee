#include "base/free_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "base/cgroups.h"
#include "base/size_text.h"

namespace choral {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// Version 1 says "no limit" by the most pages that there could be.
constexpr int64_t kNoLimitFrom = int64_t{1} << 60;
constexpr const char *kAddresses = "RLIMIT_AS (ulimit -v)", *kData = "RLIMIT_DATA (ulimit -d)";

int64_t kib_of(const SystemFiles& files, std::string_view file, std::string_view key) {
  const auto kib = files.number_of(file, key);
  return kib && *kib >= 0 && *kib < kUnlimited / 1024 ? *kib * 1024 : kUnlimited;
}

MemoryLimit machine_of(const SystemFiles& files) {
  const auto of = [&](std::string_view key) { return kib_of(files, "/proc/meminfo", key); };
  const int64_t memory = of("MemTotal"), swap = of("SwapTotal");
  const bool both = memory != kUnlimited && swap != kUnlimited && memory <= kUnlimited - swap;
  return {
      .name = "", .cure = "end other programs", .total_bytes = both ? memory + swap : memory, .free_bytes = of("MemAvailable")};
}

// Of version 1 a group may leave out of its account what the groups in it use.
bool counts_groups_in_it(const SystemFiles& files, const Cgroup& group) {
  return group.version == 2 || files.number(group.folder + "/memory.use_hierarchy") != 0;
}

std::optional<MemoryLimit> limit_of(const SystemFiles& files, const Cgroup& group) {
  const bool v2 = group.version == 2;
  const std::string file = v2 ? "memory.max" : "memory.limit_in_bytes";
  const auto limit = files.number(group.folder + "/" + file);
  if (!limit || *limit <= 0 || *limit >= kNoLimitFrom) return std::nullopt;
  const auto used = files.number(group.folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  // Pages of files count as used, but are given up for whoever wants memory.
  int64_t kept = std::clamp<int64_t>(used.value_or(0), 0, *limit);
  for (const char* pages : {"active_file", "inactive_file"}) {
    const std::string key = v2 ? pages : std::string("total_") + pages;
    kept -= std::clamp<int64_t>(files.number_of(group.folder + "/memory.stat", key).value_or(0), 0, kept);
  }
  return MemoryLimit{.name = fmt::format("{} of cgroup {}", file, group.name),
                     .cure = "raise it (docker run --memory, resources.limits.memory of a pod, MemoryMax= of a systemd unit)",
                     .total_bytes = *limit,
                     .free_bytes = *limit - kept};
}

void add_process_limit(int64_t limit, int64_t used, const char* name, const char* cure, std::vector<MemoryLimit>& out) {
  if (limit < 0) return;
  if (used == kUnlimited) used = 0;
  out.push_back({.name = name, .cure = cure, .total_bytes = limit, .free_bytes = std::max<int64_t>(limit - used, 0)});
}

int64_t limit_now(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(kUnlimited)) return -1;  // RLIM_INFINITY too
  return static_cast<int64_t>(limit.rlim_cur);
}

// Pages of the process's addresses and of its data, from /proc/self/statm; -1: not known. Without a heap.
struct Pages {
  int64_t addresses = -1, data = -1;
};
Pages pages_now() {
  std::array<char, 256> text{};
  const int descriptor = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  const ssize_t got = ::read(descriptor, text.data(), text.size());
  ::close(descriptor);
  std::array<int64_t, 6> fields{};  // size resident shared text lib data
  const char *at = text.data(), *end = at + std::max<ssize_t>(got, 0);
  for (auto& field : fields) {
    while (at < end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, field);
    if (error != std::errc()) return {};
    at = next;
  }
  return {fields[0], fields[5]};
}

}  // namespace

ProcessLimits ProcessLimits::of_this_process() { return {limit_now(RLIMIT_AS), limit_now(RLIMIT_DATA)}; }

std::vector<MemoryLimit> memory_limits(const SystemFiles& files, const ProcessLimits& process) {
  std::vector<MemoryLimit> out{machine_of(files)};
  int own_version = 0;  // of the process's own group, which comes first of its version
  for (const auto& group : cgroups_of(files, "memory")) {
    const bool is_own = std::exchange(own_version, group.version) != group.version;
    if (!is_own && !counts_groups_in_it(files, group)) continue;
    if (auto limit = limit_of(files, group)) out.push_back(std::move(*limit));
  }
  add_process_limit(process.address_bytes, kib_of(files, "/proc/self/status", "VmSize"), kAddresses,
                    "raise it (ulimit -v unlimited, prlimit --as=unlimited, LimitAS= of a systemd unit)", out);
  add_process_limit(process.data_bytes, kib_of(files, "/proc/self/status", "VmData"), kData,
                    "raise it (ulimit -d unlimited, prlimit --data=unlimited, LimitDATA= of a systemd unit)", out);
  return out;
}

FreeMemory free_memory(const SystemFiles& files, const ProcessLimits& process) {
  const auto limits = memory_limits(files, process);
  const auto by = [](int64_t MemoryLimit::*bytes) {
    return [bytes](const MemoryLimit& a, const MemoryLimit& b) { return a.*bytes < b.*bytes; };
  };
  return {.machine = limits.front(),
          .least_free = *std::min_element(limits.begin(), limits.end(), by(&MemoryLimit::free_bytes)),
          .least_total = *std::min_element(limits.begin(), limits.end(), by(&MemoryLimit::total_bytes))};
}

std::string memory_refusal_text() {
  const ProcessLimits limits = ProcessLimits::of_this_process();
  if (limits.address_bytes < 0 && limits.data_bytes < 0)
    return "all is in use, or what may be promised is (vm.overcommit_memory)";
  const Pages pages = pages_now();
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  const auto left = [&](int64_t limit, int64_t used_pages) {
    if (limit < 0) return kUnlimited;
    return used_pages < 0 ? limit : std::max<int64_t>(limit - used_pages * page_bytes, 0);
  };
  const int64_t addresses = left(limits.address_bytes, pages.addresses), data = left(limits.data_bytes, pages.data);
  const bool is_data = data < addresses;
  return fmt::format(
      "{} allows this process {}, of which {} is left: raise it, or give --kv-cache-memory and --adapter-memory less",
      is_data ? kData : kAddresses, size_text(is_data ? limits.data_bytes : limits.address_bytes),
      size_text(is_data ? data : addresses));
}

}  // namespace choral
