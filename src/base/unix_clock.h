// The wall clock's time, for people and other machines; never for measuring (base/clock.h).
#pragma once

#include <chrono>

namespace choral {

inline double unix_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace choral
