// Where the calling thread runs.
#pragma once

#include <span>

namespace choral {

// Keeps the calling thread, and threads that it starts, on these CPUs; none = as it is. False where the system does not have it
// so: the CPUs are gone, or were taken from the process.
bool stay_on(std::span<const int> cpus);

}  // namespace choral
