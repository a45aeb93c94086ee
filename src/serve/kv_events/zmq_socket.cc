#include "serve/kv_events/zmq_socket.h"

#include <algorithm>
#include <utility>

#include "base/printable.h"

namespace choral::serve {

Result<ZmqContext> ZmqContext::make() {
  CHORAL_TRY(const ZmqLibrary* zmq, ZmqLibrary::open());
  void* const context = zmq->context_new();
  if (context == nullptr) return unavailable("libzmq does not start: {}", zmq->why());
  return ZmqContext(zmq, context);
}

ZmqContext::ZmqContext(ZmqContext&& other) noexcept : zmq_(other.zmq_), context_(std::exchange(other.context_, nullptr)) {}

ZmqContext::~ZmqContext() {
  if (context_ != nullptr) zmq_->context_term(context_);
}

Result<ZmqSocket> ZmqSocket::make(const ZmqContext& context, int kind, const std::string& address, bool bind, int send_limit) {
  const ZmqLibrary& zmq = context.zmq();
  const auto failed = [&](std::string_view what) {
    return unavailable("--kv-events-config: {} cannot be {}: {}", printable(address), what, zmq.why());
  };
  void* const opened = zmq.socket(context.get(), kind);
  if (opened == nullptr) return failed("opened");
  ZmqSocket socket(&zmq, opened);
  const int no_linger = 0;  // what nobody took is dropped at the end
  if (zmq.set(opened, ZmqLibrary::kLinger, &no_linger, sizeof(no_linger)) != 0 ||
      zmq.set(opened, ZmqLibrary::kSendLimit, &send_limit, sizeof(send_limit)) != 0) {
    return failed("set up");
  }
  if ((bind ? zmq.bind : zmq.connect)(opened, address.c_str()) != 0) return failed(bind ? "bound" : "reached");
  char where[256] = {};
  size_t size = sizeof(where);
  socket.address_ = zmq.get(opened, ZmqLibrary::kAddress, where, &size) == 0 ? where : address;
  return socket;
}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept
    : zmq_(other.zmq_), socket_(std::exchange(other.socket_, nullptr)), address_(std::move(other.address_)) {}

ZmqSocket::~ZmqSocket() {
  if (socket_ != nullptr) zmq_->close(socket_);
}

Status ZmqSocket::send(std::initializer_list<std::string_view> parts) {
  for (const auto* part = parts.begin(); part != parts.end(); ++part) {
    const int more = part + 1 != parts.end() ? ZmqLibrary::kMore : 0;
    if (zmq_->send(socket_, part->data(), part->size(), ZmqLibrary::kNoWait | more) < 0)
      return unavailable("{}: {}", address_, zmq_->why());
  }
  return {};
}

std::optional<std::vector<std::string>> ZmqSocket::receive(size_t most_bytes) {
  std::vector<std::string> parts;
  std::string buffer(most_bytes, '\0');
  for (int more = 1; more != 0;) {
    const int bytes = zmq_->receive(socket_, buffer.data(), buffer.size(), ZmqLibrary::kNoWait);
    if (bytes < 0) return std::nullopt;
    constexpr size_t kMostParts = 8;
    if (parts.size() < kMostParts) parts.push_back(buffer.substr(0, std::min<size_t>(bytes, most_bytes)));
    size_t size = sizeof(more);
    if (zmq_->get(socket_, ZmqLibrary::kReceiveMore, &more, &size) != 0) return std::nullopt;
  }
  return parts;
}

}  // namespace choral::serve
