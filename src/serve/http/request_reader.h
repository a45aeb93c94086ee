// The requests of one connection, in turn, from its bytes: parser, limits over all connections, the check of the head, and what
// was read ahead of its turn. Knows no socket and no clock. Not thread-safe. Called by the connection.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/peer.h"
#include "serve/http/request_parser.h"
#include "serve/http/server_state.h"

namespace choral::serve {

class RequestReader {
 public:
  enum class Step {
    kMore,     // bytes are missing
    kWhole,    // take_request()
    kRefused,  // send refusal()
    kEnd,      // the peer ended between two requests
  };
  enum class Phase { kIdle, kHead, kBody };  // nothing came yet; part of the head; the head is whole

  RequestReader(std::shared_ptr<ServerState> server, Peer peer, bool tls);

  void begin();                           // the next request; before it, bytes are only kept
  void take(std::string_view bytes);      // what the socket gave
  void end_of_input() { ended_ = true; }  // it will give no more
  Step advance();                         // as far as the bytes last
  Phase phase() const;
  bool wants_continue();  // "100 Continue" is due; true once
  void time_out();        // the phase took too long: makes a refusal

  size_t kept_bytes() const { return in_.size() - used_; }
  bool ended() const { return ended_; }
  bool exhausted() const { return ended_ && kept_bytes() == 0; }
  const HttpLimits& limits() const { return server_->limits; }

  // kWhole.
  HttpRequest take_request() { return std::move(parser_->request()); }
  std::unique_ptr<BodyCharge> take_charge() { return std::move(charge_); }
  bool keep_alive() const { return keep_alive_; }

  // kRefused, or after time_out().
  bool refused() const { return refusal_.has_value(); }
  HttpResponse take_refusal() { return std::move(*refusal_); }
  std::string_view method() const;
  int minor_version() const;

 private:
  Step refuse(const ApiError& fault);
  std::optional<Step> check_head();

  std::string_view kept() const { return std::string_view(in_).substr(used_); }
  void use(size_t bytes);

  const std::shared_ptr<ServerState> server_;
  const Peer peer_;
  const bool tls_;
  std::string in_;   // bytes that the parser did not take at once
  size_t used_ = 0;  // at its front: taken since
  bool ended_ = false;
  std::optional<RequestParser> parser_;
  std::unique_ptr<BodyCharge> charge_;
  std::optional<HttpResponse> refusal_;
  bool head_checked_ = false;
  bool continue_due_ = false;
  bool keep_alive_ = false;  // after this request, if nothing speaks against it
};

}  // namespace choral::serve
