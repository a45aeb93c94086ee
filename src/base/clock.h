// Monotonic time in seconds, for measuring and for limits; the only clock the engine uses. What a test wants to bring about by
// hand takes it as a Clock.
#pragma once

#include <chrono>
#include <functional>

namespace choral {

inline double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

using Clock = std::function<double()>;  // now_s(), or a test's; any thread may ask it

}  // namespace choral
