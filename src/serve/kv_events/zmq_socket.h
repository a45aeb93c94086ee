// A context of libzmq with sockets in it, closed in their order. One thread at a time; nothing waits.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/kv_events/zmq_library.h"

namespace choral::serve {

class ZmqContext {
 public:
  static Result<ZmqContext> make();
  ZmqContext(ZmqContext&& other) noexcept;
  ZmqContext& operator=(ZmqContext&&) = delete;
  ~ZmqContext();

  const ZmqLibrary& zmq() const { return *zmq_; }
  void* get() const { return context_; }

 private:
  ZmqContext(const ZmqLibrary* zmq, void* context) : zmq_(zmq), context_(context) {}
  const ZmqLibrary* zmq_;
  void* context_;
};

class ZmqSocket {
 public:
  // `context` outlives it. At most `send_limit` messages wait for a peer; more are dropped.
  static Result<ZmqSocket> make(const ZmqContext& context, int kind, const std::string& address, bool bind, int send_limit);
  ZmqSocket(ZmqSocket&& other) noexcept;
  ZmqSocket& operator=(ZmqSocket&&) = delete;
  ~ZmqSocket();

  // Where it is bound, with the port that a * was given; where it leads to else.
  const std::string& address() const { return address_; }
  // One message of these parts.
  Status send(std::initializer_list<std::string_view> parts);
  // The next message, if one is there. A part longer than `most_bytes` is cut.
  std::optional<std::vector<std::string>> receive(size_t most_bytes);

 private:
  ZmqSocket(const ZmqLibrary* zmq, void* socket) : zmq_(zmq), socket_(socket) {}
  const ZmqLibrary* zmq_;
  void* socket_;
  std::string address_;
};

}  // namespace choral::serve
