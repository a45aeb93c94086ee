#include "base/cpu_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace choral {
namespace {

std::optional<int> cpu_of(std::string_view text) {
  int cpu = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  if (error != std::errc() || end != text.data() + text.size() || cpu < 0 || cpu >= kMostCpus) return std::nullopt;
  return cpu;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view list) {
  std::set<int> cpus;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), range.size() + 1));
    const size_t dash = range.find('-', 1);
    const auto begin = cpu_of(range.substr(0, dash));
    const auto end = dash == range.npos ? begin : cpu_of(range.substr(dash + 1));
    if (!begin || !end || *end < *begin) return std::nullopt;
    for (int cpu = *begin; cpu <= *end; ++cpu) cpus.insert(cpu);
  }
  if (cpus.empty()) return std::nullopt;
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0, end; i < cpus.size(); i = end) {
    for (end = i + 1; end < cpus.size() && cpus[end] == cpus[end - 1] + 1; ++end) {
    }
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
  }
  return text;
}

}  // namespace choral
