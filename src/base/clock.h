// Monotonic time in seconds, for measuring; the only clock the engine uses.
#pragma once

#include <chrono>

namespace choral {

inline double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace choral
