#include "serve/server.h"

#include <condition_variable>
#include <mutex>

#include "base/status.h"
#include "serve/http/error_response.h"
#include "serve/routes/router.h"
#include "serve/service/service.h"

namespace choral::serve {
namespace {

bool is_loopback(const HttpServerOptions& http) {
  return http.host.empty() || http.host == "localhost" || http.host == "::1" || http.host.starts_with("127.");
}

// Refuses what changes adapters where anybody could ask for it: another host, or a page in this host's browser.
std::optional<HttpResponse> check_admin(const HttpRequest& head, bool loopback) {
  if (access_of(head) != Access::kAdmin) return std::nullopt;
  if (!loopback) {
    return error_response({.status = 403,
                           .message = "adapters can be changed through a server that listens on loopback only",
                           .code = "permission_denied"});
  }
  if (head.headers.find("Origin") != nullptr)
    return error_response({.status = 403, .message = "web pages may not change adapters", .code = "permission_denied"});
  return std::nullopt;
}

}  // namespace

struct Server::Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool aborted = false;
};

Server::Server() : waiting_(std::make_unique<Waiting>()) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  std::unique_ptr<Server> server(new Server());
  CHORAL_TRY(server->service_,
             Service::make({.base_names = std::move(options.base_names), .adapter_root = std::move(options.adapter_root)}));
  const bool loopback = is_loopback(options.http);
  CHORAL_TRY(server->http_,
             HttpServer::start(
                 std::move(options.http),
                 [service = server->service_.get()](std::shared_ptr<HttpExchange> exchange) { route(*service, exchange); },
                 [loopback](const HttpRequest& head) { return check_admin(head, loopback); }));
  return server;
}

Server::~Server() {
  if (http_) http_->stop(std::chrono::milliseconds(0));
  if (service_) service_->stop();
}

void Server::attach(LLM& llm) { service_->attach(llm); }
int Server::port() const { return http_->port(); }
std::vector<std::string> Server::addresses() const { return http_->addresses(); }
void Server::set_unready() { service_->set_phase(Phase::kUnready); }

void Server::drain(std::chrono::milliseconds limit) {
  service_->set_phase(Phase::kDraining);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  {
    constexpr std::chrono::milliseconds kLook{20};
    std::unique_lock lock(waiting_->mutex);
    while (http_->exchanges() > 0 && !waiting_->aborted && std::chrono::steady_clock::now() < deadline)
      waiting_->changed.wait_for(lock, kLook);
  }
  service_->abort_all(unavailable("the server is shutting down"));
  constexpr std::chrono::milliseconds kLastWords{1000};
  http_->stop(kLastWords);
  service_->stop();
}

void Server::abort() {
  const std::lock_guard lock(waiting_->mutex);
  waiting_->aborted = true;
  waiting_->changed.notify_all();
}

}  // namespace choral::serve
