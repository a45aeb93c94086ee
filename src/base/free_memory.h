// How much memory this process may still take: the defaults of caches and budgets are shares of it. Any thread.
#pragma once

#include <cstdint>

namespace choral {

// What the kernel says is available, the container's limit included; unlimited when neither can be read.
int64_t free_memory_bytes();
// What the machine has, or the container may have, swap included; unlimited likewise.
int64_t total_memory_bytes();

}  // namespace choral
