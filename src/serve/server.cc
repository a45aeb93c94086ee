#include "serve/server.h"

#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "serve/batches/batch_runner.h"
#include "serve/kv_events/kv_event_publisher.h"
#include "serve/routes/access.h"
#include "serve/routes/router.h"
#include "serve/service/access_log.h"
#include "serve/service/observed_exchange.h"
#include "serve/service/service.h"
#include "serve/service_options.h"
#include "serve/watched_files.h"

namespace choral::serve {

struct Server::Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool aborted = false;
};

namespace {

void say_what_was_read(const std::string& name, const Status& read) {
  const std::string said = read.ok() ? name + " read again" : read.message() + "; what was read before stays";
  say("choral: {}\n", terminal_line(said));
}

}  // namespace

Server::Server() : waiting_(std::make_unique<Waiting>()) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  std::unique_ptr<Server> server(new Server());
  server->watch_files(options);
  CHORAL_TRY(auto service, service_options(options));
  CHORAL_TRY(server->service_, Service::make(std::move(service)));
  if (options.kv_events.enabled) {
    CHORAL_TRY(server->kv_events_, KvEventPublisher::make(options.kv_events));
  }
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
  CHORAL_RETURN_IF_ERROR(server->files_->start(say_what_was_read));
  return server;
}

// Before they are read for the first time: a change from then on is one.
void Server::watch_files(const ServerOptions& options) {
  std::vector<WatchedFiles::Group> groups{{"the keys were", {}, [this] { return service_->reload_keys(); }}};
  if (!options.api_key_file.empty()) groups.back().paths = {options.api_key_file};
  if (const auto& tls = options.http.tls) {
    groups.push_back(
        {"the certificate was", {tls->certificate_file, tls->key_file}, [this] { return http_->reload_certificate(); }});
    if (!tls->client_ca_file.empty()) groups.back().paths.push_back(tls->client_ca_file);
  }
  files_ = std::make_unique<WatchedFiles>(std::move(groups));
}

Server::~Server() {
  files_->stop();
  if (batches_) batches_->stop();
  if (http_) http_->stop(std::chrono::milliseconds(0));
  if (service_) service_->stop();
}

std::shared_ptr<AdapterGenerations> Server::generations() const { return service_->generations(); }

std::shared_ptr<const AdapterPlaces> Server::places() const { return service_->places(); }

Status Server::attach(LLM& llm, const EngineOptions& options) {
  CHORAL_RETURN_IF_ERROR(service_->attach(llm, options));
  if (kv_events_) CHORAL_RETURN_IF_ERROR(kv_events_->start(llm));
  if (service_->batches() == nullptr) return {};
  // No line of a batch is a line of the log.
  CHORAL_TRY(batches_, BatchRunner::start(*service_, [s = service_.get()](std::shared_ptr<HttpExchange> exchange) {
               route(*s,
                     std::make_shared<ObservedExchange>(std::move(exchange), Dialect::kOpenAI, [](const AnsweredRequest&) {}));
             }));
  return {};
}

void Server::reload_files() { files_->read_all(); }
std::vector<std::string> Server::addresses() const { return http_->addresses(); }
void Server::set_unready() { service_->set_phase(Phase::kUnready); }

void Server::drain(std::chrono::milliseconds limit) {
  service_->set_phase(Phase::kDraining);
  if (batches_) batches_->stop();
  service_->end_pauses();  // what stands still could not come to its end
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
