#include "tools/load/http_client.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <set>
#include <vector>

namespace choral::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Clock = std::chrono::steady_clock;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kPieceBytes = 64 << 10;

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A connection, and what was read from it behind an answer's end.
struct Connection {
  explicit Connection(asio::io_context& context) : stream(context) {}
  beast::basic_stream<Protocol> stream;
  beast::flat_buffer buffer{HttpClient::kMaxHeadBytes + kPieceBytes};
};

// How one try went.
struct Outcome {
  Status status = {};
  bool keep = false;   // the connection can carry another request
  bool stale = false;  // it was closed before anything of an answer came
};

bool is_closed(const error_code& error) {
  return error == http::error::end_of_stream || error == http::error::partial_message || error == asio::error::eof ||
         error == asio::error::connection_reset || error == asio::error::broken_pipe;
}

Status to_status(const error_code& error, std::string_view doing) {
  if (error == beast::error::timeout) return deadline_exceeded("{}: the time limit passed", doing);
  if (error == asio::error::operation_aborted) return cancelled("{}: stopped", doing);
  if (is_closed(error)) return corrupt("{}: the server closed the connection", doing);
  return corrupt("{}: {}", doing, error.message());
}

class BeastClient final : public HttpClient {
 public:
  explicit BeastClient(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Status look_up() {
    if (!endpoint_.unix_path.empty()) {
      addresses_.emplace_back(asio::local::stream_protocol::endpoint(endpoint_.unix_path));
      return {};
    }
    error_code error;
    asio::ip::tcp::resolver resolver(context_);
    for (const auto& found : resolver.resolve(endpoint_.host, endpoint_.port, error)) addresses_.emplace_back(found.endpoint());
    if (addresses_.empty()) return not_found("{}: no such host ({})", endpoint_.host, error.message());
    return {};
  }

  void send(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    if (stopped_) return exchange->on_end(cancelled("stopped"));
    asio::co_spawn(context_, converse(std::move(request), exchange), [exchange](const std::exception_ptr& thrown, Status status) {
      exchange->on_end(thrown ? internal_error("the HTTP client failed, for want of memory") : status);
    });
  }

  void after(double seconds, std::function<void()> call) override {
    if (stopped_) return;
    const auto timer = std::make_shared<asio::steady_timer>(context_, duration(seconds));
    timers_.insert(timer);
    timer->async_wait([this, timer, call = std::move(call)](const error_code& error) {
      timers_.erase(timer);
      if (!error && !stopped_) call();
    });
  }

  Status run() override {
    try {
      context_.restart();
      context_.run();
    } catch (const boost::system::system_error& error) {
      return internal_error("the HTTP client failed: {}", error.what());
    }
    return {};
  }

  void stop() override {
    asio::post(context_, [this] {
      stopped_ = true;
      for (auto* connection : live_) connection->stream.cancel();
      for (const auto& timer : timers_) timer->cancel();
    });
  }

 private:
  asio::awaitable<Status> converse(HttpRequest asked, std::shared_ptr<HttpExchange> exchange) {
    const auto deadline = Clock::now() + duration(asked.timeout_s);
    for (;;) {
      if (stopped_) co_return cancelled("stopped");
      const bool reused = !idle_.empty();
      auto connection = reused ? std::move(idle_.back()) : std::make_unique<Connection>(context_);
      if (reused) idle_.pop_back();
      live_.insert(connection.get());
      connection->stream.expires_at(deadline);
      Outcome outcome;
      if (!reused) outcome.status = co_await connect(*connection);
      if (outcome.status.ok()) outcome = co_await ask(*connection, asked, *exchange);
      live_.erase(connection.get());
      if (outcome.stale && reused) continue;  // a server may close a connection that it kept at any time
      if (outcome.keep && !stopped_) {
        connection->stream.expires_never();
        idle_.push_back(std::move(connection));
      }
      co_return outcome.status;
    }
  }

  asio::awaitable<Status> connect(Connection& connection) {
    error_code last;
    for (const auto& address : addresses_) {
      const auto [error] = co_await connection.stream.async_connect(address, kTuple);
      error_code ignored;
      if (!error) {
        connection.stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);  // a unix socket has no such option
        co_return Status();
      }
      connection.stream.socket().close(ignored);
      last = error;
      if (error == beast::error::timeout || error == asio::error::operation_aborted) break;
    }
    if (last == beast::error::timeout || last == asio::error::operation_aborted)
      co_return to_status(last, "connecting to " + endpoint_.to_string());
    co_return unavailable("no connection to {}: {}", endpoint_.to_string(), last.message());
  }

  asio::awaitable<Outcome> ask(Connection& connection, const HttpRequest& asked, HttpExchange& exchange) {
    http::request<http::string_body> request(http::string_to_verb(asked.method), endpoint_.prefix + asked.path, 11);
    request.set(http::field::host, endpoint_.host_header());
    request.set(http::field::user_agent, "choral-load");
    request.set(http::field::accept, "application/json, text/event-stream");
    if (!asked.api_key.empty()) request.set(http::field::authorization, "Bearer " + asked.api_key);
    if (!asked.body.empty()) request.set(http::field::content_type, "application/json");
    request.body() = asked.body;
    request.prepare_payload();
    const auto [unsent, sent] = co_await http::async_write(connection.stream, request, kTuple);
    if (unsent && !is_closed(unsent)) co_return Outcome{.status = to_status(unsent, "sending the request")};

    // A server that refuses a request may answer before it has read it, and close: the answer is still there.
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(kMaxHeadBytes);
    parser.body_limit(kMaxBodyBytes);
    const auto [no_head, head_bytes] = co_await http::async_read_header(connection.stream, connection.buffer, parser, kTuple);
    if (no_head) {
      co_return Outcome{.status = to_status(no_head, "waiting for the answer"),
                        .stale = is_closed(no_head) && !parser.got_some() && connection.buffer.size() == 0};
    }
    const auto type = parser.get()[http::field::content_type];
    exchange.on_head(static_cast<int>(parser.get().result_int()), {type.data(), type.size()});
    std::vector<char> piece(kPieceBytes);
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = piece.data();
      body.size = piece.size();
      auto [error, bytes] = co_await http::async_read_some(connection.stream, connection.buffer, parser, kTuple);
      if (error == http::error::need_buffer) error = {};
      const size_t got = piece.size() - body.size;
      if (got > 0) {
        if (Status given_up = exchange.on_body({piece.data(), got}); !given_up.ok()) co_return Outcome{.status = given_up};
      }
      if (error) co_return Outcome{.status = to_status(error, "reading the answer")};
    }
    co_return Outcome{.keep = !unsent && parser.keep_alive()};
  }

  const Endpoint endpoint_;
  asio::io_context context_{1};
  std::vector<Protocol::endpoint> addresses_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::set<Connection*> live_;
  std::set<std::shared_ptr<asio::steady_timer>> timers_;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::make(const Endpoint& endpoint) {
  auto client = std::make_unique<BeastClient>(endpoint);
  CHORAL_RETURN_IF_ERROR(client->look_up());
  return std::unique_ptr<HttpClient>(std::move(client));
}

}  // namespace choral::tools
