// Where a server is, as a user writes it. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::tools {

struct Endpoint {
  std::string host;         // without the brackets of an IPv6 address
  std::string port = "80";  // digits
  std::string unix_path;    // instead of the two
  bool is_tls = false;      // https, held to the system's certificates
  std::string prefix;       // before "/v1/…", without a slash at its end

  std::string host_header() const;
  std::string to_string() const;  // for messages
};

// "http://host:port/prefix", "https://…", "host:port", "unix:/path". A prefix that ends in /v1 is taken as OpenAI's base_url.
Result<Endpoint> parse_endpoint(std::string_view url);

}  // namespace choral::tools
