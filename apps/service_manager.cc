#include "service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/printable.h"

namespace choral::apps {

ServiceManager::ServiceManager() {
  const char* name = std::getenv("NOTIFY_SOCKET");
  if (name != nullptr) socket_ = name;
  unsetenv("NOTIFY_SOCKET");
  if (socket_.empty()) return;
  const bool is_place = socket_.size() > 1 && (socket_[0] == '/' || socket_[0] == '@');
  if (is_place && socket_.size() < sizeof sockaddr_un{}.sun_path) return;
  CHORAL_LOG(kWarn, "NOTIFY_SOCKET={} is neither a path nor an abstract name of a socket, so no service manager is told anything",
             printable(socket_));
  socket_.clear();
}

void ServiceManager::tell(std::string_view message) const {
  if (socket_.empty()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') to.sun_path[0] = 0;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool sent = fd >= 0 && sendto(fd, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to),
                                      size) == static_cast<ssize_t>(message.size());
  if (!sent) CHORAL_LOG(kWarn, "the service manager at {} could not be told: {}", printable(socket_), std::strerror(errno));
  if (fd >= 0) ::close(fd);
}

}  // namespace choral::apps
