#include "serve/http/request_reader.h"

#include <utility>

#include "serve/http/error_response.h"
#include "serve/http/fault_boundary.h"
#include "serve/http/request_ids.h"

namespace choral::serve {
namespace {

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

RequestReader::RequestReader(std::shared_ptr<ServerState> server, Peer peer, bool tls)
    : server_(std::move(server)), peer_(std::move(peer)), tls_(tls) {}

void RequestReader::begin() {
  parser_.emplace(server_->limits);
  HttpRequest& request = parser_->request();
  request.peer = peer_.text;
  request.payer = peer_.host;
  request.loopback = peer_.loopback;
  request.unix_socket = !peer_.tcp && peer_.loopback;
  request.tls = tls_;
  charge_ = std::make_unique<BodyCharge>(server_);
  refusal_.reset();
  head_checked_ = false;
  continue_due_ = false;
  keep_alive_ = false;
  if (in_.empty()) std::string().swap(in_);  // a connection that waits holds no buffer
}

void RequestReader::take(std::string_view bytes) {
  // What the parser takes at once is never copied.
  const bool may_parse = in_.empty() && parser_ && !parser_->done();
  in_.erase(0, std::exchange(used_, 0));
  in_ += bytes.substr(may_parse ? parser_->feed(bytes) : 0);
}

void RequestReader::use(size_t bytes) {
  used_ += bytes;
  if (used_ < in_.size()) return;
  in_.clear();
  used_ = 0;
}

RequestReader::Phase RequestReader::phase() const {
  if (head_checked_) return Phase::kBody;
  return in_.empty() && !parser_->started() && parser_->fault() == nullptr ? Phase::kIdle : Phase::kHead;
}

RequestReader::Step RequestReader::advance() {
  for (;;) {
    use(parser_->feed(kept()));
    if (parser_->fault() != nullptr) return refuse(*parser_->fault());
    if (parser_->head_done() && !head_checked_) {
      head_checked_ = true;
      if (const auto refused = check_head()) return *refused;
      continue;  // the parser stopped at the end of the head
    }
    if (!charge_->grow_to(static_cast<int64_t>(parser_->request().body.capacity()), parser_->request().payer)) {
      return refuse({503, "the large requests of this client, or of all, hold as much memory as they may now: try again soon",
                     "overloaded", ""});
    }
    if (parser_->done()) {
      keep_alive_ = parser_->keep_alive();
      return Step::kWhole;
    }
    if (!ended_) return Step::kMore;
    if (phase() == Phase::kIdle) return Step::kEnd;
    return refuse({400, "the connection ended inside a request", "malformed_request", ""});
  }
}

std::optional<RequestReader::Step> RequestReader::check_head() {
  HttpRequest& request = parser_->request();
  request.ids = make_request_ids(request.headers);
  server_->trusted_proxies.tell_client(peer_, request);
  if (server_->head_check != nullptr) {
    std::optional<HttpResponse> refusal;
    if (!contained("the check of a request's head", [&] { refusal = server_->head_check(request); })) {
      return refuse({500, "the server failed on this request", "internal", ""});
    }
    if (refusal) {
      refusal_ = std::move(refusal);
      add_ids(request.ids, refusal_->headers);
      server_->tell_refusal(request, *refusal_);
      keep_alive_ = parser_->done() && parser_->keep_alive();  // with a body unread there is no next request
      return Step::kRefused;
    }
  }
  continue_due_ = parser_->expects_continue() && kept_bytes() == 0 && !parser_->done();
  return std::nullopt;
}

bool RequestReader::wants_continue() { return std::exchange(continue_due_, false); }

RequestReader::Step RequestReader::refuse(const ApiError& fault) {
  refusal_ = error_response(fault);
  RequestIds& ids = parser_->request().ids;
  if (ids.request.empty()) ids = make_request_ids(parser_->request().headers);  // of as much as there is
  add_ids(ids, refusal_->headers);
  server_->tell_refusal(parser_->request(), *refusal_);
  keep_alive_ = false;
  std::string().swap(parser_->request().body);  // nobody will read it, and the connection may live on for a while
  charge_.reset();
  return Step::kRefused;
}

void RequestReader::time_out() {
  const bool in_body = phase() == Phase::kBody;
  refuse({408,
          fmt::format("the request's {} took longer than {}", in_body ? "body" : "headers",
                      seconds_text(in_body ? server_->limits.body_time : server_->limits.header_time)),
          "request_timeout", ""});
}

std::string_view RequestReader::method() const { return parser_->request().method; }
int RequestReader::minor_version() const { return parser_->request().minor_version; }

}  // namespace choral::serve
