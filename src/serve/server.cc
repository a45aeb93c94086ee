#include "serve/server.h"

#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "base/status.h"
#include "serve/routes/access.h"
#include "serve/routes/router.h"
#include "serve/service/access_log.h"
#include "serve/service/observed_exchange.h"
#include "serve/service/service.h"

namespace choral::serve {
namespace {

bool is_loopback(const HttpServerOptions& http) {
  return http.host.empty() || http.host == "localhost" || http.host == "::1" || http.host.starts_with("127.");
}

RateLimit rate_limit(const FairShare& share) { return {.max_in_flight = share.requests, .tokens_per_s = share.tokens_per_s}; }

// Empty: nobody chose.
Result<std::optional<ScoreBy>> score_by_named(std::string_view name) {
  using Choice = std::optional<ScoreBy>;
  if (name.empty()) return Choice();
  if (name == "vectors") return Choice(ScoreBy::kVectors);
  if (name == "yes-no") return Choice(ScoreBy::kYesNo);
  if (name == "head") return Choice(ScoreBy::kHead);
  return invalid_argument("--score-by {}: choose vectors, yes-no or head", name);
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
  ServiceOptions service{.base_names = std::move(options.base_names),
                         .adapter_root = std::move(options.adapter_root),
                         .state_directory = std::move(options.state_directory),
                         .stored_response_bytes = options.stored_response_bytes,
                         .base_adapters = std::move(options.base_adapters),
                         .api_key_file = std::move(options.api_key_file),
                         .api_keys = std::move(options.api_keys),
                         .admin_keys = std::move(options.admin_keys),
                         .key_limit = rate_limit(options.key_share),
                         .adapter_limit = rate_limit(options.adapter_share),
                         .is_loopback = is_loopback(options.http),
                         .has_proxies = !options.http.trusted_proxies.empty(),
                         .shares_prefixes = options.share_prefixes,
                         .has_console = options.has_console,
                         .strict_fields = options.strict_fields};
  CHORAL_TRY(service.allowed_hosts, AllowedHosts::make(std::move(options.allowed_hosts), service.is_loopback));
  CHORAL_TRY(service.score_by, score_by_named(options.score_by));
  CHORAL_TRY(service.cors, Cors::make(options.cors_origins));
  if (!options.tool_call_parser.empty()) {
    CHORAL_TRY(service.tool_format, tool_format_named(options.tool_call_parser));
  }
  if (!options.reasoning_parser.empty()) {
    CHORAL_TRY(service.thoughts, thought_marks_named(options.reasoning_parser));
  }
  CHORAL_TRY(server->service_, Service::make(std::move(service)));
  Service* const s = server->service_.get();
  const auto told = [s, log = options.access_log](AnsweredRequest answered) {
    s->note_answer(route_of(answered.request), answered.status);
    if (log == AccessLog::kOff) return;
    if (const auto holder = s->key_holder(answered.request)) answered.key = holder->name;
    say("{}\n", access_line(log, answered));
  };
  CHORAL_TRY(
      server->http_,
      HttpServer::start(
          std::move(options.http),
          [s, told](std::shared_ptr<HttpExchange> exchange) {
            const Dialect dialect = dialect_of(exchange->request());
            Headers more;
            s->cors().add_headers(exchange->request(), more);
            route(*s, std::make_shared<ObservedExchange>(std::move(exchange), dialect, told, std::move(more)));
          },
          [s](HttpRequest& head) {
            if (std::string payer = s->payer(head); !payer.empty()) head.payer = std::move(payer);
            auto refusal = check_access(*s, head);
            if (refusal) s->cors().add_headers(head, refusal->headers);
            return refusal;
          },
          // Refused before it was a request; how long that took nobody knows.
          [told](const HttpRequest& known, HttpResponse& refusal) {
            translate(dialect_of(known), known.ids, refusal);
            told({.request = known, .status = refusal.status, .begin_unix_s = unix_s(), .notes = {.reason = refusal.reason}});
          }));
  return server;
}

Server::~Server() {
  if (http_) http_->stop(std::chrono::milliseconds(0));
  if (service_) service_->stop();
}

std::shared_ptr<AdapterGenerations> Server::generations() const { return service_->generations(); }
Status Server::attach(LLM& llm, const EngineOptions& options) { return service_->attach(llm, options); }
Status Server::reload_keys() { return service_->reload_keys(); }
Status Server::reload_certificate() { return http_->reload_certificate(); }
std::vector<std::string> Server::addresses() const { return http_->addresses(); }
void Server::set_unready() { service_->set_phase(Phase::kUnready); }

void Server::drain(std::chrono::milliseconds limit) {
  service_->set_phase(Phase::kDraining);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  {
    constexpr std::chrono::milliseconds kLook{20};
    std::unique_lock lock(waiting_->mutex);
    const auto computes = [&] { return http_->exchanges() > 0 || !service_->background().empty(); };
    while (computes() && !waiting_->aborted && std::chrono::steady_clock::now() < deadline)
      waiting_->changed.wait_for(lock, kLook);
  }
  service_->abort_all(unavailable("the server is shutting down"));
  constexpr std::chrono::milliseconds kLastWords{5000};  // ends as soon as they are out
  http_->stop(kLastWords);
  service_->stop();
}

void Server::abort() {
  const std::lock_guard lock(waiting_->mutex);
  waiting_->aborted = true;
  waiting_->changed.notify_all();
}

}  // namespace choral::serve
