#include "serve/http/byte_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "serve/http/tls.h"

namespace choral::serve {
namespace {

constexpr size_t kPiecesAtOnce = 16;

IoResult failed_with(int error, IoOutcome waiting) {
  const bool later = error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
  return {later ? waiting : IoOutcome::kFailed};
}

IoResult received(ssize_t n) {
  if (n > 0) return {IoOutcome::kMoved, static_cast<size_t>(n)};
  return n == 0 ? IoResult{IoOutcome::kEnd} : failed_with(errno, IoOutcome::kWantsRead);
}

}  // namespace

ByteStream::ByteStream(int socket, std::unique_ptr<TlsSession> tls) : socket_(socket), tls_(std::move(tls)) {}
ByteStream::~ByteStream() = default;

IoResult ByteStream::handshake() { return tls_ == nullptr ? IoResult{IoOutcome::kMoved, 1} : tls_->handshake(); }

IoResult ByteStream::read(std::span<char> into) {
  if (tls_ != nullptr) return tls_->read(into);
  return received(::recv(socket_, into.data(), into.size(), MSG_DONTWAIT));
}

// With MSG_TRUNC nothing is copied from a TCP socket.
IoResult ByteStream::drop(std::span<char> room) {
  return received(::recv(socket_, room.data(), room.size(), MSG_DONTWAIT | MSG_TRUNC));
}

IoResult ByteStream::write(const std::deque<std::string>& pieces, size_t skip) {
  if (tls_ != nullptr) return tls_->write(std::string_view(pieces.front()).substr(skip));
  std::array<iovec, kPiecesAtOnce> parts;
  const size_t count = std::min(pieces.size(), kPiecesAtOnce);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view rest = std::string_view(pieces[i]).substr(i == 0 ? skip : 0);
    parts[i] = {const_cast<char*>(rest.data()), rest.size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t n = ::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0) return {IoOutcome::kMoved, static_cast<size_t>(n)};
  return failed_with(n == 0 ? EAGAIN : errno, IoOutcome::kWantsWrite);
}

void ByteStream::end_sending() {
  if (tls_ != nullptr) tls_->say_goodbye();
  ::shutdown(socket_, SHUT_WR);
}

void ByteStream::reset_on_close() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

bool ByteStream::peer_spoke_http() const { return tls_ != nullptr && tls_->peer_spoke_http(); }

}  // namespace choral::serve
