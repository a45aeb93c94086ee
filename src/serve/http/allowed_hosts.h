// Which names a request may call this server by, in its Host header. A web page can have a name of its own that leads to
// 127.0.0.1 (DNS rebinding): to the browser both are one site, and the page could read a server that listens on loopback because
// nobody else should reach it. Only the Host header gives such a page away. The names of this machine itself (localhost and what
// ends in .localhost, 127.0.0.0/8, [::1]) are always good, and so is whoever comes over the unix socket. Any page may also send
// what it likes to any address without reading the answer; its own name then stands in Origin, and pages of these names alone
// are served. Immutable; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "serve/http/message.h"

namespace choral::serve {

class AllowedHosts {
 public:
  AllowedHosts() = default;  // any
  // `names`: "api.example.com", "*.example.com" (whatever ends so), an address, or "*": any. None: any, unless the server listens
  // on loopback.
  static Result<AllowedHosts> make(std::vector<std::string> names, bool is_loopback);

  bool allows(const HttpRequest& head) const;
  // No page sent it, or one of an allowed name, or one that this server is to the browser: of the Host header's name and port.
  bool allows_origin(const HttpRequest& head) const;
  // A page sent it that came from here: of the Host header's name and port, and of the connection's scheme.
  static bool is_own_page(const HttpRequest& head);

 private:
  bool is_known(const std::string& name) const;

  bool any_ = true;                 // of Host
  bool any_origin_ = false;         // "*" was given
  std::vector<std::string> names_;  // as host_name() has them
};

// The name of a Host header, without its port, a dot at its end, and brackets, in lower case; empty when it is no name.
std::string host_name(std::string_view host);

}  // namespace choral::serve
