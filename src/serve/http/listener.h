// Listening sockets: bound, with their errors told in full, not yet accepting anybody. Functions are thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"

namespace choral::serve {

struct Listener {
  OwnedFd socket;
  std::string address;  // "127.0.0.1:8000", "[::1]:8000", or the path
  int port = 0;         // 0 for a unix socket
  bool unix_socket = false;
  dev_t device = 0;  // of the unix socket's file, so that nobody else's is removed at the end
  ino_t inode = 0;
};

// All addresses of `host`. Port 0 is a free one, the same for all of them. An address that this machine does not have is left out
// with a warning unless it is the only one.
Result<std::vector<Listener>> listen_tcp(const std::string& host, int port);

// Only the user who runs the server may connect. A socket file that nobody listens on any more is replaced.
Result<Listener> listen_unix(const std::string& path);

// Removes a unix socket's file if it is still the listener's own.
void remove_socket_file(const Listener& listener);

}  // namespace choral::serve
