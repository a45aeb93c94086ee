// Who listens on a TCP port of this machine, from /proc. Thread-safe.
#pragma once

#include <string>

namespace choral::serve {

// "python3 (process 1234)"; empty when it cannot be known: another user's process, or one of another network.
std::string port_holder(int port);

}  // namespace choral::serve
