#include "serve/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <string>

#include "serve/http/answer.h"
#include "serve/http/answer_writer.h"
#include "serve/http/byte_stream.h"
#include "serve/http/error_response.h"
#include "serve/http/fault_boundary.h"
#include "serve/http/out_queue.h"
#include "serve/http/request_ids.h"
#include "serve/http/request_reader.h"
#include "serve/http/response_head.h"

namespace choral::serve {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Executor = asio::io_context::executor_type;
using Descriptor = asio::posix::basic_stream_descriptor<Executor>;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;
// No co_await stands inside && or ?: here: GCC 12 loses its result.
template <class T>
using Task = asio::awaitable<T, Executor>;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable_t<Executor>());

constexpr size_t kReadAhead = 16 << 10;                   // of later requests while one is answered
constexpr int kTurns = 16;                                // reads or requests before other connections have a turn
constexpr int kKernelUnsentBytes = 128 << 10;             // what the system keeps of an answer beyond what is on its way
constexpr auto kLingerSilence = std::chrono::seconds(2);  // after the last answer, for the peer to read it and close
constexpr auto kLingerTotal = std::chrono::seconds(10);
constexpr auto kLingerPause = std::chrono::milliseconds(1);  // after each read of what nobody wants: others go first
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

class AsioConnection final : public Connection, public std::enable_shared_from_this<AsioConnection> {
 public:
  AsioConnection(std::shared_ptr<ServerState> server, std::shared_ptr<IoThread> thread, ConnectionSet& connections,
                 NewConnection accepted, std::unique_ptr<TlsSession> tls)
      : count_(std::move(accepted.count)),
        server_(std::move(server)),
        thread_(std::move(thread)),
        connections_(connections),
        tcp_(accepted.peer.tcp),
        descriptor_(thread_->context(), accepted.socket.get()),
        stream_(accepted.socket.release(), std::move(tls)),
        timer_(thread_->context()),
        reader_(server_, std::move(accepted.peer), stream_.encrypted()) {
    connections_.insert(this);
    if (tcp_) set_up_tcp();
  }

  ~AsioConnection() override { connections_.erase(this); }

  // Keeps itself alive to its end.
  void start() {
    asio::co_spawn(
        thread_->context(), [self = shared_from_this()] { return self->serve(); },
        [self = shared_from_this()](std::exception_ptr fault) {
          if (fault) contained("a connection", [&] { std::rethrow_exception(fault); });
          self->end();
        });
  }

  // Ends a wait(), or the next one.
  void wake() override {
    woken_ = true;
    timer_.cancel();
  }

 private:
  void set_up_tcp() {
    const auto set = [this](int level, int option, int value) {
      ::setsockopt(descriptor_.native_handle(), level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kKernelUnsentBytes);
    // A peer that vanished without a word: asked for after a minute, and not waited for when it confirms nothing.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(server_->limits.write_stall_time.count()));
  }

  // Until wake(); false when `deadline` came first.
  Task<bool> wait(Clock::time_point deadline) {
    while (!woken_) {
      if (Clock::now() >= deadline) co_return false;
      timer_.expires_at(deadline);
      co_await timer_.async_wait(kAwait);
    }
    woken_ = false;
    turns_ = 0;
    co_return true;
  }

  // Lets the thread's other connections go first.
  Task<void> yield(Clock::duration pause = {}) {
    turns_ = 0;
    timer_.expires_at(Clock::now() + pause);
    co_await timer_.async_wait(kAwait);
  }

  // wake() once when the socket can be read or written, or failed. `watched` is a member.
  void watch(Descriptor::wait_type what, bool& watched) {
    if (watched) return;
    watched = true;
    descriptor_.async_wait(what, [self = shared_from_this(), what, &watched](const boost::system::error_code& cancelled) {
      watched = false;
      if (cancelled) return;
      if (what == Descriptor::wait_error) self->failed_ = true;
      self->wake();
    });
  }
  // False when there is nothing to wait for any more.
  bool watch_for(IoOutcome outcome) {
    if (outcome == IoOutcome::kWantsRead) watch(Descriptor::wait_read, read_watched_);
    if (outcome == IoOutcome::kWantsWrite) watch(Descriptor::wait_write, write_watched_);
    return outcome == IoOutcome::kWantsRead || outcome == IoOutcome::kWantsWrite;
  }

  Task<void> serve() {
    bool open = co_await shake_hands();
    while (open) {
      open = co_await read_request();
      if (!open) break;
      if (reader_.refused()) {
        open = co_await send_refusal();
      } else {
        open = co_await answer_request();
      }
    }
  }

  void end() {
    if (answer_ != nullptr) drop_answer();
    boost::system::error_code ignored;
    descriptor_.close(ignored);  // what watches it holds this object until now
    timer_.cancel();
  }

  Task<bool> shake_hands() {
    const auto deadline = Clock::now() + server_->limits.header_time;
    while (!server_->cut_off) {
      const IoOutcome outcome = stream_.handshake().outcome;
      if (outcome == IoOutcome::kMoved) co_return true;
      if (stream_.peer_spoke_http()) answer_without_tls();
      if (!watch_for(outcome)) co_return false;
      if (!co_await wait(deadline)) co_return false;
    }
    co_return false;
  }

  void answer_without_tls() {
    const HttpResponse response = error_response({400, "this port speaks TLS: use https", "tls_expected", ""});
    const std::string bytes =
        response_head(response.status, response.headers, {BodyEnd::kLength, response.body.size(), 1, false}) + response.body;
    ::send(descriptor_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ::shutdown(descriptor_.native_handle(), SHUT_WR);
  }

  // True when reader_ has a whole request or a refusal to send; else the connection is to be closed.
  Task<bool> read_request() {
    using Step = RequestReader::Step;
    using Phase = RequestReader::Phase;
    reader_.begin();
    out_.release_spare();
    Phase phase = Phase::kIdle;
    auto deadline = Clock::now() + server_->limits.idle_time;
    while (!server_->cut_off) {
      if (++turns_ > kTurns) co_await yield();
      const Step step = reader_.advance();
      if (step == Step::kWhole || step == Step::kRefused) co_return true;
      if (step == Step::kEnd) co_return false;
      if (phase != reader_.phase()) {
        phase = reader_.phase();
        deadline = Clock::now() + (phase == Phase::kBody ? server_->limits.body_time : server_->limits.header_time);
      }
      if (phase == Phase::kIdle && server_->draining) co_return false;
      if (reader_.wants_continue()) out_.append(kContinue);
      if (!flush()) co_return false;
      const std::span<char> scratch = thread_->scratch();
      const IoResult result = stream_.read(scratch);
      if (result.outcome == IoOutcome::kMoved) {
        reader_.take({scratch.data(), result.bytes});
      } else if (result.outcome == IoOutcome::kEnd) {
        reader_.end_of_input();
      } else if (!watch_for(result.outcome)) {
        co_return false;
      } else if (!co_await wait(deadline)) {
        if (phase == Phase::kIdle) co_return false;
        reader_.time_out();
        co_return true;
      }
    }
    co_return false;
  }

  // True when the next request can be read.
  Task<bool> answer_request() {
    AnswerWriter writer(reader_.method(), reader_.minor_version(), reader_.keep_alive());
    answer_ = std::make_shared<Answer>(reader_.take_request(), reader_.take_charge(), server_->limits, thread_, weak_from_this());
    ++server_->exchanges;
    answer_->expect_take();
    if (!contained("a handler", [this] { server_->handler(answer_->exchange()); })) {
      CHORAL_LOG(kError, "a request was not answered as it should be:{}", ids_text(answer_->request().ids));
      answer_->answer_fault("the server failed on this request");
    }
    const bool sent = co_await send_answer(writer);
    if (sent) answer_->finish();
    drop_answer();
    if (!sent) co_return false;
    const bool open = co_await go_on(writer.keep_alive());
    co_return open;
  }

  void drop_answer() {
    --server_->exchanges;
    answer_->close();  // does nothing after finish()
    answer_.reset();
  }

  // True when the next request can be read.
  Task<bool> send_refusal() {
    AnswerWriter writer(reader_.method(), reader_.minor_version(), reader_.keep_alive());
    HttpResponse response = reader_.take_refusal();
    Answer::Taken whole;
    whole.head = Answer::Head{response.status, std::move(response.headers), false};
    whole.pieces.push_back(std::move(response.body));
    whole.complete = true;
    writer.write(whole, server_->draining, out_);
    last_sent_ = Clock::now();
    while (flush() && !server_->cut_off) {
      if (out_.empty()) break;
      if (!co_await wait(last_sent_ + server_->limits.write_stall_time)) break;
    }
    if (!out_.empty()) co_return false;
    const bool open = co_await go_on(writer.keep_alive());
    co_return open;
  }

  // After an answer that was sent.
  Task<bool> go_on(bool keep_alive) {
    if (keep_alive && !reader_.exhausted()) co_return true;
    co_await close_gently();
    co_return false;
  }

  // True when all of it was handed to the system.
  Task<bool> send_answer(AnswerWriter& writer) {
    Answer::Taken taken;
    bool probed = false;
    while (!server_->cut_off) {
      answer_->take(taken);
      if (out_.empty()) last_sent_ = Clock::now();
      writer.write(taken, server_->draining, out_);
      if (!flush() || taken.aborted) break;
      answer_->set_unsent(out_.bytes());
      if (taken.complete && out_.empty()) co_return true;
      if (writer.is_stream() && out_.bytes() > static_cast<size_t>(server_->limits.stream_cap_bytes)) break;
      if (!watch_peer()) break;
      if (reader_.ended() && !writer.begun() && !probed && tcp_ && minor_version() == 1) {
        probed = true;  // has it closed, or only said all it had to say? docs/design/http-on-beast.md
        out_.append(kContinue);
        continue;
      }
      const auto deadline = out_.empty() ? Clock::time_point::max() : last_sent_ + server_->limits.write_stall_time;
      if (!co_await wait(deadline)) break;
    }
    if (writer.ends_by_close()) stream_.reset_on_close();  // else the client would take what it has for the whole
    co_return false;
  }

  int minor_version() const { return answer_->request().minor_version; }

  // Hands bytes to the system until it takes no more. False when the connection is gone.
  bool flush() {
    while (!out_.empty()) {
      const IoResult result = stream_.write(out_.pieces(), out_.sent_of_front());
      if (result.outcome != IoOutcome::kMoved) return watch_for(result.outcome);
      out_.sent(result.bytes);
      last_sent_ = Clock::now();
    }
    return true;
  }

  // Hears of the peer while it is answered: a little of later requests is read ahead; beyond that, or when the peer has said that
  // it sends no more, a failure is waited for. False when the connection is gone.
  bool watch_peer() {
    while (!read_watched_ && !reader_.ended() && reader_.kept_bytes() < kReadAhead) {
      const std::span<char> scratch = thread_->scratch().first(kReadAhead);
      const IoResult result = stream_.read(scratch);
      if (result.outcome == IoOutcome::kMoved) {
        reader_.take({scratch.data(), result.bytes});
      } else if (result.outcome == IoOutcome::kEnd) {
        reader_.end_of_input();
      } else {
        return watch_for(result.outcome);
      }
    }
    if (!read_watched_) watch(Descriptor::wait_error, error_watched_);
    return !failed_;
  }

  // Says that nothing follows and reads on until the peer closes: closing over unread bytes would reset the connection, and the
  // peer would lose what it has not read yet. Whoever goes on sending nevertheless is heard for so many bytes, at a pace that
  // leaves the thread to others.
  Task<void> close_gently() {
    stream_.end_sending();
    auto silent_since = Clock::now();
    const auto latest = silent_since + kLingerTotal;
    int64_t left = server_->limits.dropped_bytes;
    while (!server_->cut_off && !reader_.ended() && left > 0 && Clock::now() < latest) {
      const IoResult dropped = stream_.drop(thread_->scratch());
      if (dropped.outcome == IoOutcome::kMoved) {
        left -= static_cast<int64_t>(dropped.bytes);
        co_await yield(kLingerPause);
        silent_since = Clock::now();
        continue;
      }
      if (!watch_for(dropped.outcome)) co_return;
      if (!co_await wait(std::min(latest, silent_since + kLingerSilence))) co_return;
    }
  }

  const std::shared_ptr<ConnectionCount> count_;
  const std::shared_ptr<ServerState> server_;
  const std::shared_ptr<IoThread> thread_;
  ConnectionSet& connections_;
  const bool tcp_;
  Descriptor descriptor_;
  ByteStream stream_;
  Timer timer_;
  RequestReader reader_;
  OutQueue out_;
  std::shared_ptr<Answer> answer_;
  Clock::time_point last_sent_;
  int turns_ = 0;  // of reading, since the thread did something else
  bool woken_ = false;
  bool failed_ = false;
  bool read_watched_ = false;
  bool write_watched_ = false;
  bool error_watched_ = false;
};

}  // namespace

void start_connection(std::shared_ptr<ServerState> server, std::shared_ptr<IoThread> thread, ConnectionSet& connections,
                      NewConnection accepted, TlsContext* tls) {
  contained("a new connection", [&] {
    std::unique_ptr<TlsSession> session = tls == nullptr ? nullptr : tls->accept(accepted.socket.get());
    if (tls != nullptr && session == nullptr) {
      CHORAL_LOG(kWarn, "a connection of {} is closed: no memory for TLS", accepted.peer.text);
      return;
    }
    std::make_shared<AsioConnection>(std::move(server), std::move(thread), connections, std::move(accepted), std::move(session))
        ->start();
  });
}

}  // namespace choral::serve
