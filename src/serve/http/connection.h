// One connection: reads requests in turn, hands each to the handler, sends its answer, until either side has enough. A coroutine
// on its I/O thread; nothing here is touched elsewhere. Who starts it: the server's accept loop.
#pragma once

#include <memory>
#include <unordered_set>

#include "base/owned_fd.h"
#include "serve/http/io_thread.h"
#include "serve/http/peer.h"
#include "serve/http/server_state.h"
#include "serve/http/tls.h"

namespace choral::serve {

class Connection {
 public:
  virtual ~Connection() = default;
  // Looks again at what may have changed: its answer, whether the server drains or cuts everything off.
  virtual void wake() = 0;
};

// The connections of one I/O thread; on that thread only.
using ConnectionSet = std::unordered_set<Connection*>;

struct NewConnection {
  OwnedFd socket;  // connected, non-blocking
  Peer peer;
  std::shared_ptr<ConnectionCount> count;
};

// On `thread`, in whose set the connection stands as long as it lives. `tls` may be null. One that cannot be started is closed
// and logged.
void start_connection(std::shared_ptr<ServerState> server, std::shared_ptr<IoThread> thread, ConnectionSet& connections,
                      NewConnection accepted, TlsContext* tls);

}  // namespace choral::serve
