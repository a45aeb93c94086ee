// What all connections of a server share. Counters are atomics; the rest does not change while the server runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "serve/http/body_budget.h"
#include "serve/http/fault_boundary.h"
#include "serve/http/limits.h"
#include "serve/http/server.h"
#include "serve/http/trusted_proxies.h"

namespace choral::serve {

struct ServerState {
  HttpLimits limits;
  TrustedProxies trusted_proxies;
  HttpHandler handler;
  HttpHeadCheck head_check;
  HttpRefusalObserver on_refusal;

  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> exchanges{0};
  BodyBudget bodies;                  // held by BodyCharges
  std::atomic<bool> draining{false};  // connections that wait for no answer close
  std::atomic<bool> cut_off{false};   // all close

  void tell_refusal(const HttpRequest& known, HttpResponse& refusal) const {
    if (on_refusal != nullptr) contained("the observer of refusals", [&] { on_refusal(known, refusal); });
  }

  std::mutex mutex;
  std::condition_variable connection_gone;
};

// One of server->connections for as long as it lives.
class ConnectionCount {
 public:
  explicit ConnectionCount(std::shared_ptr<ServerState> server) : server_(std::move(server)) { ++server_->connections; }
  ~ConnectionCount() {
    const std::lock_guard lock(server_->mutex);
    --server_->connections;
    server_->connection_gone.notify_all();
  }
  ConnectionCount(const ConnectionCount&) = delete;
  ConnectionCount& operator=(const ConnectionCount&) = delete;

 private:
  const std::shared_ptr<ServerState> server_;
};

// The part of limits.all_bodies_bytes that one request holds, from its first byte to the end of its exchange.
class BodyCharge {
 public:
  explicit BodyCharge(std::shared_ptr<ServerState> server) : server_(std::move(server)) {}
  ~BodyCharge() {
    if (bytes_ > 0) server_->bodies.give_back(payer_, bytes_);
  }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;

  // False when the budget does not allow it; nothing changes then. `payer`: the same in all calls.
  bool grow_to(int64_t bytes, const std::string& payer) {
    const int64_t more = bytes - BodyBudget::kFreeBytes - bytes_;
    if (more <= 0) return true;
    if (!server_->bodies.take(payer, more, server_->limits.all_bodies_bytes)) return false;
    payer_ = payer;
    bytes_ += more;
    return true;
  }

 private:
  std::shared_ptr<ServerState> server_;
  std::string payer_;
  int64_t bytes_ = 0;
};

}  // namespace choral::serve
