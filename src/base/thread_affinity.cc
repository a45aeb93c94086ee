#include "base/thread_affinity.h"

#include <sched.h>

#include <algorithm>
#include <memory>

namespace choral {

bool stay_on(std::span<const int> cpus) {
  if (cpus.empty()) return true;
  const int most = *std::max_element(cpus.begin(), cpus.end()) + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(most), [](cpu_set_t* s) { CPU_FREE(s); });
  if (set == nullptr) return false;
  const size_t bytes = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
}

}  // namespace choral
