// TLS 1.2 and later by OpenSSL, over a socket that never blocks. OpenSSL's headers stay in tls.cc.
// TlsContext: thread-safe once loaded. TlsSession: one connection's, on its I/O thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "serve/http/byte_stream.h"
#include "serve/http/server.h"

namespace choral::serve {

class TlsSession {
 public:
  virtual ~TlsSession() = default;
  virtual IoResult handshake() = 0;
  virtual IoResult read(std::span<char> into) = 0;
  // After kWantsRead or kWantsWrite the next write begins with the same bytes.
  virtual IoResult write(std::string_view bytes) = 0;
  virtual void say_goodbye() = 0;            // close_notify, if it can go out at once
  virtual bool peer_spoke_http() const = 0;  // the handshake failed since the peer sent a request without TLS
};

class TlsContext {
 public:
  // Errors name the file.
  static Result<std::shared_ptr<TlsContext>> load(const TlsOptions& options);
  virtual ~TlsContext() = default;
  // Over `socket`, which the caller keeps open as long as the session; null without memory.
  virtual std::unique_ptr<TlsSession> accept(int socket) = 0;
};

}  // namespace choral::serve
