// A client for tests that sends exactly the bytes it is told and sees exactly what comes back, also what no proper client would
// do: half a request, a reset, one byte at a time. Blocking; whatever takes longer than 60 s fails the test. Not thread-safe.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/owned_fd.h"
#include "serve/http/message.h"

namespace choral::serve::testing {

inline constexpr int kPatienceMs = 60'000;

// Asks until it is so; false after the patience.
inline bool eventually(const std::function<bool()>& condition) {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= latest) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct RawResponse {
  int status = 0;
  Headers headers;
  std::string body;
  bool complete = false;  // head and body are whole
};

class RawClient {
 public:
  static RawClient tcp(int port, int receive_buffer = 0) {
    RawClient client = tcp_or_closed(port, receive_buffer);
    CHORAL_CHECK(client.open(), "no connection");
    return client;
  }
  // Not open() when nobody listens.
  static RawClient tcp_or_closed(int port, int receive_buffer = 0) {
    RawClient client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer > 0) ::setsockopt(client.socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(client.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) client.close();
    return client;
  }
  static RawClient unix_socket(const std::string& path) {
    RawClient client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    CHORAL_CHECK(::connect(client.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
                 "no connection");
    return client;
  }

  bool open() const { return socket_.open(); }
  int fd() const { return socket_.get(); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Appends to the bytes at hand; false at the end or a reset.
  bool receive() {
    CHORAL_CHECK(readable(kPatienceMs), "nothing came from the server");
    char bytes[65536];
    const ssize_t n = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (n > 0) received_.append(bytes, static_cast<size_t>(n));
    ended_ = n == 0;
    reset_ = n < 0;
    return n > 0;
  }
  bool readable(int within_ms) const {
    pollfd poll{socket_.get(), POLLIN, 0};
    return ::poll(&poll, 1, within_ms) > 0;
  }

  // Bytes up to and with `mark`, taken; what there is when the connection ends before.
  std::string read_until(std::string_view mark) {
    size_t at;
    while ((at = received_.find(mark)) == std::string::npos) {
      if (!receive()) return take(received_.size());
    }
    return take(at + mark.size());
  }
  std::string read_bytes(size_t count) {
    while (received_.size() < count && receive()) {
    }
    return take(std::min(count, received_.size()));
  }
  std::string read_to_end() {
    while (receive()) {
    }
    return take(received_.size());
  }

  // One answer; `head_only` for HEAD. "100 Continue" is skipped and counted.
  RawResponse read_response(bool head_only = false) {
    RawResponse response;
    do {
      response = read_head();
      if (response.status == 100) ++continues_;
    } while (response.status == 100);
    if (response.status == 0) return response;
    if (head_only || response.status == 204 || response.status == 304) {
      response.complete = true;
    } else if (response.headers.get("Transfer-Encoding") == "chunked") {
      read_chunks(response);
    } else if (const std::string* length = response.headers.find("Content-Length")) {
      const size_t wanted = std::stoul(*length);
      response.body = read_bytes(wanted);
      response.complete = response.body.size() == wanted;
    } else {
      response.body = read_to_end();
      response.complete = ended_;
    }
    return response;
  }
  RawResponse get(std::string_view path, std::string_view more_headers = "") {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(more_headers) + "\r\n");
    return read_response();
  }

  bool ended() const { return ended_; }  // the last receive() met the end
  bool was_reset() const { return reset_; }
  bool at_end() { return received_.empty() && !receive() && ended_; }
  int continues() const { return continues_; }

  void half_close() { ::shutdown(socket_.get(), SHUT_WR); }
  void close() { socket_.reset(); }
  void close_with_reset() {
    const linger at_once{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket_.reset();
  }

 private:
  explicit RawClient(int fd) : socket_(fd) { CHORAL_CHECK(fd >= 0, "no socket"); }

  std::string take(size_t count) {
    std::string taken = received_.substr(0, count);
    received_.erase(0, count);
    return taken;
  }

  RawResponse read_head() {
    RawResponse response;
    const std::string head = read_until("\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ") || !head.ends_with("\r\n\r\n")) return response;
    response.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(": ", at);
      CHORAL_CHECK(colon < end, "a header without a colon");
      response.headers.add(head.substr(at, colon - at), head.substr(colon + 2, end - colon - 2));
      at = end + 2;
    }
    return response;
  }

  void read_chunks(RawResponse& response) {
    for (;;) {
      const std::string line = read_until("\r\n");
      if (!line.ends_with("\r\n")) return;
      const size_t size = std::stoul(line, nullptr, 16);
      const std::string piece = read_bytes(size + 2);
      if (piece.size() < size + 2) return void(response.body += piece);
      CHORAL_CHECK(piece.ends_with("\r\n"), "a chunk that does not end where it says");
      if (size == 0) return void(response.complete = true);
      response.body.append(piece, 0, size);
    }
  }

  OwnedFd socket_;
  std::string received_;
  bool ended_ = false;
  bool reset_ = false;
  int continues_ = 0;
};

}  // namespace choral::serve::testing
