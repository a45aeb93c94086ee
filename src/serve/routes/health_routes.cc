#include "serve/http/error_response.h"
#include "serve/openai/json.h"
#include "serve/routes/routes.h"

namespace choral::serve {

void health(Service& service, const Exchange& exchange) {
  service.probe(exchange, [&service](LLM& llm, const Exchange& e) {
    constexpr std::chrono::seconds kLongestStep{30};
    const Status alive = llm.check_health(kLongestStep);
    if (!alive.ok()) return e->respond(error_response({.status = 503, .message = alive.message(), .code = "engine_dead"}));
    e->respond({.status = 200});
  });
}

void readyz(Service& service, const Exchange& exchange) {
  switch (service.phase()) {
    case Phase::kLoading: return exchange->respond(error_response(unavailable("the model is being loaded")));
    case Phase::kReady: return exchange->respond({.status = 200});
    case Phase::kUnready:
    case Phase::kDraining: return exchange->respond(error_response(unavailable("the server is shutting down")));
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
