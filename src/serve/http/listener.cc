#include "serve/http/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "serve/http/peer.h"
#include "serve/http/port_holder.h"

namespace choral::serve {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error == EAI_MEMORY) return resource_exhausted("cannot look up the host {}: no memory for it", quoted(host));
  if (error != 0) {
    return invalid_argument("cannot listen on the host {}: {}; give an address of this machine, such as 127.0.0.1 or 0.0.0.0",
                            quoted(host), error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error));
  }
  return Addresses(list);
}

int bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

void set_port(sockaddr* address, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
}

Status bind_error(int error, const std::string& address, int port) {
  const std::string what = fmt::format("cannot listen on {}", address);
  if (error == EADDRINUSE) {
    const std::string holder = port_holder(port);
    return already_exists("{}: the port is taken{}; stop what holds it or choose another port", what,
                          holder.empty() ? "" : fmt::format(" by {}", holder));
  }
  if (error == EACCES) return permission_denied("{}: ports below 1024 are the administrator's; choose another port", what);
  if (error == EADDRNOTAVAIL) return invalid_argument("{}: this machine does not have that address", what);
  return system_error(error, what);
}

bool machine_lacks(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

// `error` is errno's value when it fails.
Result<Listener> listen_on(const addrinfo& found, int port, int& error) {
  Listener listener;
  set_port(found.ai_addr, port);
  listener.address = peer_of(found.ai_addr).text;
  listener.socket = OwnedFd(::socket(found.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!listener.socket.open() || ::setsockopt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener.socket.get(), found.ai_addr, found.ai_addrlen) != 0 || ::listen(listener.socket.get(), SOMAXCONN) != 0) {
    error = errno;
    return bind_error(error, listener.address, port);
  }
  listener.port = bound_port(listener.socket.get());
  set_port(found.ai_addr, listener.port);
  listener.address = peer_of(found.ai_addr).text;
  return listener;
}

// Something answers on the socket file.
bool somebody_listens(const sockaddr_un& address) {
  const OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.open()) return true;  // not known: then nothing is removed
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno != ECONNREFUSED;
}

Status make_way(const sockaddr_un& address, const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) {
    return errno == ENOENT ? Status() : system_error(errno, fmt::format("cannot look at {}", quoted(path)));
  }
  if (!S_ISSOCK(file.st_mode)) {
    return already_exists("cannot listen on {}: there is a file of that name that is no socket; choose another path",
                          quoted(path));
  }
  if (somebody_listens(address)) {
    return already_exists("cannot listen on {}: another program listens there; stop it or choose another path", quoted(path));
  }
  CHORAL_LOG(kInfo, "the socket {} is left from a server that ended, and is replaced", quoted(path));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return system_error(errno, fmt::format("cannot remove the old {}", quoted(path)));
  return {};
}

}  // namespace

Result<std::vector<Listener>> listen_tcp(const std::string& host, int port) {
  if (port < 0 || port > 65535) return invalid_argument("cannot listen on port {}: ports go from 0 (a free one) to 65535", port);
  CHORAL_TRY(const Addresses addresses, resolve(host, port));
  std::vector<Listener> listeners;
  Status lacking;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    int error = 0;
    auto listener = listen_on(*at, listeners.empty() ? port : listeners.front().port, error);
    if (listener.ok()) {
      listeners.push_back(std::move(listener).value());
    } else if (machine_lacks(error)) {
      lacking = std::move(listener).status();
      if (addresses->ai_next != nullptr) CHORAL_LOG(kWarn, "{}: {}", quoted(host), lacking.message());
    } else {
      return std::move(listener).status();
    }
  }
  if (listeners.empty()) return lacking;
  return listeners;
}

Result<Listener> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos) {
    return invalid_argument("cannot listen on {}: the path of a unix socket has 1 to {} bytes, this one {}; choose a shorter one",
                            quoted(path), sizeof address.sun_path - 1, path.size());
  }
  path.copy(address.sun_path, path.size());
  CHORAL_RETURN_IF_ERROR(make_way(address, path));
  Listener listener;
  listener.address = path;
  listener.unix_socket = true;
  listener.socket = OwnedFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const std::string what = fmt::format("cannot listen on {}", quoted(path));
  if (!listener.socket.open() ||
      ::bind(listener.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error(errno, what);
  }
  struct stat file {};
  // Nobody can connect before listen(): the mode is in force in time.
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::lstat(path.c_str(), &file) != 0 ||
      ::listen(listener.socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return system_error(error, what);
  }
  listener.device = file.st_dev;
  listener.inode = file.st_ino;
  return listener;
}

void remove_socket_file(const Listener& listener) {
  struct stat file {};
  if (!listener.unix_socket || ::lstat(listener.address.c_str(), &file) != 0) return;
  if (file.st_dev == listener.device && file.st_ino == listener.inode) ::unlink(listener.address.c_str());
}

}  // namespace choral::serve
