#include "serve/http/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <future>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "serve/http/byte_stream.h"
#include "serve/http/connection.h"
#include "serve/http/error_response.h"
#include "serve/http/fault_boundary.h"
#include "serve/http/io_thread.h"
#include "serve/http/listener.h"
#include "serve/http/request_ids.h"
#include "serve/http/response_head.h"
#include "serve/http/server_state.h"

namespace choral::serve {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr int kAcceptsAtOnce = 64;       // before other work of the thread has a turn
constexpr milliseconds kPause(100);      // without file descriptors
constexpr milliseconds kLook(10);        // between looks at a counter
constexpr milliseconds kLastWords(500);  // for connections that have their answer to see the end

void wake_all(const ConnectionSet& connections) {
  for (Connection* connection : connections) connection->wake();
}

// On the thread, waited for; here when the caller is on it.
void run_on(IoThread& thread, const std::function<void()>& work) {
  if (thread.on_it()) return work();
  std::promise<void> done;
  thread.post([&] {
    contained("the server", work);
    done.set_value();
  });
  done.get_future().wait();
}

template <class Condition>
void wait_until(ServerState& state, std::chrono::steady_clock::time_point latest, Condition reached) {
  std::unique_lock lock(state.mutex);
  while (!reached() && std::chrono::steady_clock::now() < latest) {
    state.connection_gone.wait_until(lock, std::min(latest, std::chrono::steady_clock::now() + kLook));
  }
}

template <class Work>
Status or_no_descriptor(Work&& work) {
  try {
    work();
    return {};
  } catch (const boost::system::system_error& error) {
    return resource_exhausted("the listening socket cannot be waited for: {}", error.code().message());
  }
}

}  // namespace

// One listening socket on its I/O thread.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Accept = std::function<void(OwnedFd, const Peer&)>;

  Acceptor(asio::io_context& context, int socket, Accept accept)
      : descriptor_(context, socket), pause_(context), accept_(std::move(accept)) {}

  void wait() {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](const boost::system::error_code& ended) {
                             if (!ended) self->take_waiting();
                           });
  }

  void close() {
    boost::system::error_code ignored;
    descriptor_.close(ignored);
    pause_.cancel();
  }

 private:
  void take_waiting() {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      OwnedFd socket(
          ::accept4(descriptor_.native_handle(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.open()) {
        const Peer peer = peer_of(reinterpret_cast<const sockaddr*>(&address));
        contained("accepting a connection", [&] { accept_(std::move(socket), peer); });
        continue;
      }
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) return rest(error);
      if (error == EAGAIN || error == EWOULDBLOCK) break;  // others are of a connection that is gone already
    }
    wait();
  }

  // Whoever waits to be accepted makes the socket readable all the time: asking again at once would only burn the CPU.
  void rest(int error) {
    if (!std::exchange(complained_, true)) {
      CHORAL_LOG(kWarn, "no connection can be accepted now: {}; trying again every {} ms", std::generic_category().message(error),
                 kPause.count());
    }
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](const boost::system::error_code& ended) {
      if (!ended) self->take_waiting();
    });
  }

  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer pause_;
  const Accept accept_;
  bool complained_ = false;  // once is enough
};

struct HttpServer::Lane {
  std::shared_ptr<IoThread> thread;
  ConnectionSet connections;  // on the thread only
};

HttpServer::HttpServer(std::shared_ptr<ServerState> state) : state_(std::move(state)) {}
HttpServer::~HttpServer() { stop(milliseconds(0)); }

int64_t HttpServer::connections() const { return state_->connections; }
int64_t HttpServer::exchanges() const { return state_->exchanges; }
void HttpServer::post(std::function<void()> work) { lanes_.front().thread->post(std::move(work)); }
void HttpServer::post_after(milliseconds delay, std::function<void()> work) {
  lanes_.front().thread->post_after(delay, std::move(work));
}

Status HttpServer::run(const HttpServerOptions& options) {
  tls_options_ = options.tls;
  CHORAL_RETURN_IF_ERROR(reload_certificate());
  if (!options.host.empty()) {
    CHORAL_TRY(listeners_, listen_tcp(options.host, options.port));
    port_ = listeners_.front().port;
  }
  if (!options.unix_path.empty()) {
    CHORAL_TRY(Listener listener, listen_unix(options.unix_path));
    listeners_.push_back(std::move(listener));
  }
  if (listeners_.empty()) return invalid_argument("the server has nowhere to listen: give a host or the path of a unix socket");
  for (const Listener& listener : listeners_) {
    addresses_.push_back((listener.unix_socket ? "unix:" : tls_options_ ? "https://" : "http://") + listener.address);
  }
  for (int i = 0; i < std::max(1, options.io_threads); ++i) {
    CHORAL_TRY(auto thread, IoThread::start(i));
    lanes_.push_back({std::move(thread), {}});
  }
  return start_accepting();
}

Status HttpServer::reload_certificate() {
  if (!tls_options_) return {};
  CHORAL_TRY(auto fresh, TlsContext::load(*tls_options_));
  const std::lock_guard lock(tls_mutex_);
  tls_ = std::move(fresh);  // sessions keep what they began with
  return {};
}

void HttpServer::stop_accepting() {
  const std::lock_guard lock(accept_mutex_);
  if (std::exchange(accepting_ended_, true)) return;
  if (!acceptors_.empty()) {
    run_on(*lanes_.front().thread, [this] {
      for (const auto& acceptor : acceptors_) acceptor->close();
      acceptors_.clear();
    });
  }
  for (const Listener& listener : listeners_) remove_socket_file(listener);
}

void HttpServer::drain() {
  state_->draining = true;
  for (Lane& lane : lanes_) {
    lane.thread->post([&lane] { wake_all(lane.connections); });
  }
}

void HttpServer::stop(milliseconds grace) {
  for (const Lane& lane : lanes_) CHORAL_CHECK(!lane.thread->on_it(), "an I/O thread cannot wait for itself");
  const std::lock_guard lock(stop_mutex_);
  if (std::exchange(stopped_, true)) return;
  stop_accepting();
  drain();
  const auto latest = std::chrono::steady_clock::now() + grace;
  wait_until(*state_, latest, [this] { return state_->exchanges == 0; });
  wait_until(*state_, std::min(latest, std::chrono::steady_clock::now() + kLastWords),
             [this] { return state_->connections == 0; });
  state_->cut_off = true;
  for (Lane& lane : lanes_) {
    run_on(*lane.thread, [&lane] { wake_all(lane.connections); });
  }
  wait_until(*state_, std::chrono::steady_clock::time_point::max(), [this] { return state_->connections == 0; });
  for (Lane& lane : lanes_) lane.thread->stop();
}

Status HttpServer::start_accepting() {
  asio::io_context& context = lanes_.front().thread->context();
  return or_no_descriptor([&] {
    for (Listener& listener : listeners_) {
      const bool tls = tls_options_ && !listener.unix_socket;
      acceptors_.push_back(std::make_shared<Acceptor>(
          context, listener.socket.get(), [this, tls](OwnedFd socket, const Peer& peer) { take(std::move(socket), peer, tls); }));
      listener.socket.release();  // the acceptor's now
    }
    run_on(*lanes_.front().thread, [this] {
      for (const auto& acceptor : acceptors_) acceptor->wait();
    });
  });
}

std::shared_ptr<TlsContext> HttpServer::tls_context() {
  const std::lock_guard lock(tls_mutex_);
  return tls_;
}

void HttpServer::take(OwnedFd socket, const Peer& peer, bool tls) {
  if (state_->connections >= state_->limits.max_connections) return turn_away(socket, peer, tls);
  auto count = std::make_shared<ConnectionCount>(state_);
  Lane& lane = lanes_[next_lane_++ % lanes_.size()];
  auto accepted = std::make_shared<NewConnection>(NewConnection{std::move(socket), peer, std::move(count)});
  lane.thread->post([this, &lane, accepted, context = tls ? tls_context() : nullptr] {
    start_connection(state_, lane.thread, lane.connections, std::move(*accepted), context.get());
  });
}

// Without a connection's cost: what the socket takes at once.
void HttpServer::turn_away(const OwnedFd& socket, const Peer& peer, bool tls) {
  if (!std::exchange(turned_away_, true)) {
    CHORAL_LOG(kWarn, "there are {} connections, as many as are allowed: others are answered 503",
               state_->limits.max_connections);
  }
  HttpRequest unread;
  unread.peer = peer.text;
  unread.loopback = peer.loopback;
  unread.ids = make_request_ids({});
  HttpResponse full =
      error_response({503, "the server has as many connections as it may have: try again soon", "overloaded", ""});
  state_->tell_refusal(unread, full);
  if (tls) return;
  add_ids(unread.ids, full.headers);
  const std::string bytes = response_head(full.status, full.headers, {BodyEnd::kLength, full.body.size(), 1, false}) + full.body;
  ::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(socket.get(), SHUT_WR);
  // A request that is there already would turn closing into a reset, and the answer would be lost. Of a peer that goes on
  // sending no more is taken.
  ByteStream(socket.get(), nullptr).drop(lanes_.front().thread->scratch());
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, HttpHandler handler, HttpHeadCheck head_check,
                                                      HttpRefusalObserver on_refusal) {
  auto state = std::make_shared<ServerState>();
  state->limits = options.limits;
  CHORAL_TRY(state->trusted_proxies, TrustedProxies::make(options.trusted_proxies));
  state->handler = std::move(handler);
  state->head_check = std::move(head_check);
  state->on_refusal = std::move(on_refusal);
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(state)));
  CHORAL_RETURN_IF_ERROR(server->run(options));
  return server;
}

}  // namespace choral::serve
