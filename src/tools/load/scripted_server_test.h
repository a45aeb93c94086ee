// An HTTP server of raw sockets for tests of a client: what it sends, in which pieces, and when it hangs up, is said by the test.
// A thread for each connection. Tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace choral::tools {

struct Asked {
  std::string head;  // with the request line
  std::string body;
  int on_connection = 0;  // which request of its connection, from 1
};

struct Script {
  std::vector<std::string> pieces;  // each sent by one call
  int pause_ms = 0;                 // before each piece
  bool close = false;               // afterwards
  bool hang = false;                // afterwards: neither more bytes nor an end, until the server goes
};

class ScriptedServer {
 public:
  using Handler = std::function<Script(const Asked&)>;

  // A TCP port of its own choice, or a unix socket.
  explicit ScriptedServer(Handler handler, const std::string& unix_path = "") : handler_(std::move(handler)) {
    if (unix_path.empty()) {
      listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof address;
      CHORAL_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0, "a port");
      CHORAL_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0, "the port's number");
      url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    } else {
      listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      unix_path.copy(address.sun_path, sizeof address.sun_path - 1);
      CHORAL_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "a socket");
      url_ = "unix:" + unix_path;
    }
    CHORAL_CHECK(::listen(listener_, 64) == 0, "to listen");
    acceptor_ = std::thread([this] { accept(); });
  }
  ~ScriptedServer() {
    stop_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (auto& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  const std::string& url() const { return url_; }
  int connections() const { return connections_; }
  int most_at_once() const { return most_at_once_; }

 private:
  void accept() {
    for (;;) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0 || stop_) {
        if (socket >= 0) ::close(socket);
        return;
      }
      ++connections_;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }
  void serve(int socket) {
    std::string read;
    for (int number = 1;; ++number) {
      size_t end;
      while ((end = read.find("\r\n\r\n")) == read.npos) {
        if (!more(socket, read)) return;
      }
      Asked asked{read.substr(0, end + 2), "", number};
      const size_t length_at = asked.head.find("Content-Length: ");
      const size_t length = length_at == std::string::npos ? 0 : std::stoul(asked.head.substr(length_at + 16));
      while (read.size() < end + 4 + length) {
        if (!more(socket, read)) return;
      }
      asked.body = read.substr(end + 4, length);
      read.erase(0, end + 4 + length);
      const int now = ++active_;
      for (int most = most_at_once_; now > most && !most_at_once_.compare_exchange_weak(most, now);) {
      }
      const Script script = handler_(asked);
      for (const auto& piece : script.pieces) {
        if (script.pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(script.pause_ms));
        if (::send(socket, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
      }
      --active_;
      if (script.hang) {
        while (more(socket, read)) {
        }
        return;
      }
      if (script.close) {
        ::shutdown(socket, SHUT_RDWR);
        return;
      }
    }
  }
  static bool more(int socket, std::string& read) {
    char bytes[4096];
    const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
    if (got > 0) read.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  const Handler handler_;
  int listener_ = -1;
  std::string url_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0}, active_{0}, most_at_once_{0};
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// --- answers ---
inline std::string whole(int status, const std::string& body, const std::string& type = "application/json") {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string stream_head() {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
}
inline std::string chunk(const std::string& text) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}
inline std::string event(const std::string& data) { return "data: " + data + "\n\n"; }
inline std::string token(const std::string& text) { return event(R"({"choices":[{"index":0,"text":")" + text + R"("}]})"); }

}  // namespace choral::tools
