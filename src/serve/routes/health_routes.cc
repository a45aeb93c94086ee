#include "serve/http/error_response.h"
#include "serve/openai/json.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

// On the I/O thread: whoever watches the server must not wait for what it is busy with.
void tell(const Status& status, const Exchange& exchange) {
  exchange->respond(status.ok() ? json_response(R"({"status":"ok"})") : error_response(status));
}

}  // namespace

void health(Service& service, const Exchange& exchange) { tell(service.health(), exchange); }

void readyz(Service& service, const Exchange& exchange) {
  switch (service.phase()) {
    case Phase::kLoading: return tell(unavailable("the model is being loaded"), exchange);
    case Phase::kReady:
      if (const LLM* const engine = service.llm(); engine != nullptr && engine->stats().is_paused)
        return tell(unavailable("the engine is paused; POST /resume lets it go on"), exchange);
      return tell(service.health(), exchange);
    case Phase::kUnready:
    case Phase::kDraining: return tell(unavailable("the server is shutting down"), exchange);
  }
}

void metrics(Service& service, const Exchange& exchange) {
  service.probe(exchange, [&service](LLM&, const Exchange& e) {
    e->respond(
        {.status = 200, .headers = {{"Content-Type", std::string(Metrics::kContentType)}}, .body = service.metrics_text()});
  });
}

void show_version(Service&, const Exchange& exchange) { exchange->respond(json_response(dumped({{"version", version()}}))); }

}  // namespace choral::serve
