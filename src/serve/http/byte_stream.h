// A connected socket, with TLS or without, that never blocks: each call moves what it can and says what it waits for. Not
// thread-safe. Called by the connection, which does the waiting.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>

namespace choral::serve {

class TlsSession;

enum class IoOutcome {
  kMoved,       // `bytes` of them, at least 1
  kWantsRead,   // again when the socket can be read
  kWantsWrite,  // again when it can be written
  kEnd,         // the peer said that it sends no more
  kFailed,      // the connection is gone
};
struct IoResult {
  IoOutcome outcome;
  size_t bytes = 0;
};

class ByteStream {
 public:
  // `socket` stays the caller's and open.
  ByteStream(int socket, std::unique_ptr<TlsSession> tls);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  bool encrypted() const { return tls_ != nullptr; }
  IoResult handshake();  // kMoved when it is done
  IoResult read(std::span<char> into);
  // Takes as many bytes off the socket as `room` holds, for nobody to read, still encrypted: after end_sending().
  IoResult drop(std::span<char> room);
  // The pieces' bytes without the first `skip` of the front one; not empty.
  IoResult write(const std::deque<std::string>& pieces, size_t skip);
  void end_sending();     // the peer reads an end
  void reset_on_close();  // closing will tell the peer that something went wrong
  bool peer_spoke_http() const;

 private:
  const int socket_;
  const std::unique_ptr<TlsSession> tls_;
};

}  // namespace choral::serve
