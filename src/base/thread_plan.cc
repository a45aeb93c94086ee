#include "base/thread_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/cpu_topology.h"

namespace choral {

Result<Seating> parse_numa(std::string_view name) {
  if (name == "auto") return Seating::kWhereAllAre;
  if (name == "off") return Seating::kAnywhere;
  if (name == "distribute") return Seating::kSpread;
  return invalid_argument("\"{}\" is none of auto, off, distribute", name);
}

ThreadPlan ThreadPlan::on(const CpuTopology& topology, int threads, Seating seating) {
  const int cores = topology.cores(), fast = cores - topology.efficient_cores();
  const bool takes_all = threads >= cores;
  struct Cache {
    std::vector<int> cpus;
    std::set<int> cores;
  };
  std::map<std::tuple<int, int, int>, Cache> caches;  // neighbours of a socket and node beside each other
  for (const auto& place : topology.cpus) {
    if (place.efficient && !takes_all) continue;
    Cache& cache = caches[{place.socket, place.node, place.cache}];
    cache.cpus.push_back(place.cpu);
    cache.cores.insert(place.core);
  }
  const bool stay = seating == Seating::kSpread || (seating == Seating::kWhereAllAre && threads >= fast);
  if (!stay || caches.size() < 2) return anywhere(threads);
  const int seated = takes_all ? cores : fast;
  ThreadPlan plan;
  int domain = 0, cores_so_far = 0;
  for (const auto& [place, cache] : caches) {
    cores_so_far += static_cast<int>(cache.cores.size());
    const size_t end = static_cast<size_t>(threads) * cores_so_far / seated;
    while (plan.seats.size() < end) plan.seats.push_back({.domain = domain, .cpus = cache.cpus});
    ++domain;
  }
  return plan;
}

ThreadPlan ThreadPlan::part(int part, int parts) const {
  const size_t count = seats.size();
  const auto at = [&](int of) { return seats.begin() + static_cast<std::ptrdiff_t>(count * static_cast<size_t>(of) / parts); };
  ThreadPlan own{{at(part), at(part + 1)}};
  const int first = own.seats.front().domain;
  for (auto& seat : own.seats) seat.domain -= first;
  return own;
}

}  // namespace choral
