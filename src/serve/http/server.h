// A server for HTTP/1.0 and 1.1 over TCP, TLS and a unix socket. It reads whole requests within limits, hands each to one handler
// as an HttpExchange, and sends the answers in order. Why it stands on Asio and Beast and why they show in no header:
// docs/design/http-on-beast.md.
// Thread-safety: every method from any thread. stop() and the destructor wait for the I/O threads: never call them from there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "serve/http/exchange.h"
#include "serve/http/limits.h"

namespace choral {
class OwnedFd;
}

namespace choral::serve {

class Acceptor;
class TlsContext;
struct Listener;
struct Peer;
struct ServerState;

struct TlsOptions {
  std::string certificate_file;  // PEM, with its chain
  std::string key_file;          // PEM
  std::string client_ca_file;    // PEM; when given, clients must show a certificate signed by it
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // a name or an address; a name's addresses are all listened on. Empty: no TCP
  int port = 8000;                 // 0: a free one
  std::string unix_path;           // empty: no unix socket
  int io_threads = 1;
  HttpLimits limits;
  std::vector<std::string> trusted_proxies;  // that say whom a request comes from (http/trusted_proxies.h)
  std::optional<TlsOptions> tls;             // for TCP; the unix socket is never encrypted
};

// On an I/O thread; must not block. What it throws is logged and answered with 500.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;
// Called when the head of a request is read and its body is not: an answer here (401, 404, 413) refuses the request before its
// body costs anything. May say in head.payer whose share the body is of. On an I/O thread; must not block.
using HttpHeadCheck = std::function<std::optional<HttpResponse>(HttpRequest& head)>;

// Told of each request that the transport or the head check refused, with what is known of it (perhaps nothing but the peer) and
// what is sent: for logs and counters. On an I/O thread; must not block.
using HttpRefusalObserver = std::function<void(const HttpRequest& known, HttpResponse& refusal)>;

class HttpServer {
 public:
  // Listening when it returns. Errors name the address and the reason; for a taken port, who holds it where that can be known.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, HttpHandler handler, HttpHeadCheck head_check = {},
                                                   HttpRefusalObserver on_refusal = {});
  ~HttpServer();  // stop(0)
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }  // of TCP; 0 without
  // "http://127.0.0.1:8000", "https://[::1]:8000", "unix:/run/choral.sock"
  std::vector<std::string> addresses() const { return addresses_; }

  int64_t connections() const;  // open ones
  int64_t exchanges() const;    // requests whose answer is not complete

  // The files of TLS are read again, for connections that come from now on; an error leaves the certificate as it was. Fine, and
  // nothing, without TLS.
  Status reload_certificate();

  // The listening sockets are closed; open connections live on.
  void stop_accepting();
  // Idle connections are closed; each other one after the answer it waits for.
  void drain();
  // stop_accepting(), drain(), at most `grace` for answers to become complete; then the rest is cut off (on_closed is called) and
  // the threads end. Once; later calls wait for the first.
  void stop(std::chrono::milliseconds grace);

  // Runs `work` on an I/O thread (always the same one), in order. Work that is posted before stop() runs; timers that are not due
  // then don't.
  void post(std::function<void()> work);
  void post_after(std::chrono::milliseconds delay, std::function<void()> work);

 private:
  struct Lane;

  explicit HttpServer(std::shared_ptr<ServerState> state);
  Status run(const HttpServerOptions& options);
  Status start_accepting();
  void take(OwnedFd socket, const Peer& peer, bool tls);
  void turn_away(const OwnedFd& socket, const Peer& peer, bool tls);
  std::shared_ptr<TlsContext> tls_context();

  const std::shared_ptr<ServerState> state_;
  std::optional<TlsOptions> tls_options_;
  std::mutex tls_mutex_;
  std::shared_ptr<TlsContext> tls_;
  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  int port_ = 0;
  std::vector<Lane> lanes_;
  size_t next_lane_ = 0;      // on the first thread only
  bool turned_away_ = false;  // on the first thread only

  std::mutex accept_mutex_;
  bool accepting_ended_ = false;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

}  // namespace choral::serve
