// Threads that cannot be had are an error like any other: std::thread's constructor throws where the system refuses one.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace choral {

// Starts a thread that runs `body`; else resource_exhausted with the system's reason and what to do. `what` names it: "the
// engine's thread".
Result<std::thread> start_thread(std::string_view what, std::function<void()> body);

}  // namespace choral
