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

struct ssl_st;      // OpenSSL's SSL
struct ssl_ctx_st;  // and SSL_CTX

namespace choral::serve {

struct FreeTls {
  void operator()(ssl_st* session) const;
  void operator()(ssl_ctx_st* context) const;
};

class TlsSession {
 public:
  explicit TlsSession(std::unique_ptr<ssl_st, FreeTls> ssl) : ssl_(std::move(ssl)) {}

  IoResult handshake();
  IoResult read(std::span<char> into);
  // After kWantsRead or kWantsWrite the next write begins with the same bytes.
  IoResult write(std::string_view bytes);
  void say_goodbye();                                   // close_notify, if it can go out at once
  bool peer_spoke_http() const { return spoke_http_; }  // the handshake failed since the peer sent a request without TLS

 private:
  IoResult outcome_of(int done);

  const std::unique_ptr<ssl_st, FreeTls> ssl_;
  bool spoke_http_ = false;
  bool broken_ = false;  // OpenSSL forbids a shutdown then
};

class TlsContext {
 public:
  // Errors name the file.
  static Result<std::shared_ptr<TlsContext>> load(const TlsOptions& options);
  // Over `socket`, which the caller keeps open as long as the session; null without memory.
  std::unique_ptr<TlsSession> accept(int socket);

 private:
  std::unique_ptr<ssl_ctx_st, FreeTls> context_;
};

}  // namespace choral::serve
