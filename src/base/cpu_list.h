// The kernel's lists of CPUs, as it writes them and as people type them: "0-7,16".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace choral {

constexpr int kMostCpus = 1 << 16;

// Ascending, each once; none when it is no such list, is empty or names a CPU from kMostCpus on.
std::optional<std::vector<int>> parse_cpu_list(std::string_view list);

// The same of ascending CPUs.
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace choral
