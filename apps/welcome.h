// What `choral serve` says when it is ready: where it listens, and lines that ask this server as it is: with its keys, its TLS,
// its names, and by a route that its model has. Pure.
#pragma once

#include <string>
#include <vector>

namespace choral::apps {

struct WelcomeFacts {
  std::vector<std::string> addresses;  // "http://127.0.0.1:8000", "unix:/run/choral.sock"
  std::string model;                   // that a request may name
  std::string host;                    // a name that --allowed-hosts has; empty: any will do
  bool has_chat_template = false;
  bool has_console = false;
  bool wants_key = false;
  bool wants_certificate = false;  // of clients
};

std::string welcome_text(const WelcomeFacts& facts);

}  // namespace choral::apps
