// The limits of the transport; docs/design/http-on-beast.md. A value.
#pragma once

#include <chrono>
#include <cstdint>

namespace choral::serve {

// What one request, one connection and all of them may cost. A request over a limit is answered with the status given here and
// the connection is closed.
struct HttpLimits {
  int64_t target_bytes = 8 << 10;                      // of the request line's path and query: 414
  int64_t header_bytes = 64 << 10;                     // request line and headers together: 431
  int64_t header_count = 100;                          // 431
  int64_t body_bytes = 32 << 20;                       // 413
  int64_t dropped_bytes = 32 << 20;                    // read and dropped after the last answer, that it may arrive: closed
  int64_t all_bodies_bytes = 1 << 30;                  // of all requests being read or answered, by shares: 503
  std::chrono::milliseconds header_time{10'000};       // from a request's first byte, and for TLS's handshake: 408
  std::chrono::milliseconds body_time{60'000};         // from the end of the headers: 408
  std::chrono::milliseconds idle_time{75'000};         // between requests: closed silently
  std::chrono::milliseconds write_stall_time{30'000};  // without the peer taking a byte: closed
  int64_t max_connections = 4096;                      // one more is answered 503
  int64_t stream_high_bytes = 64 << 10;                // HttpExchange::congested
  int64_t stream_cap_bytes = 8 << 20;                  // unsent bytes of a stream: closed
};

}  // namespace choral::serve
