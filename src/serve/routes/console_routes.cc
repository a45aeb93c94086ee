// The page at `/`, and what it shows of the engine.
#include "base/printable.h"
#include "requests/engine_json.h"
#include "serve/console/console_answer.h"
#include "serve/http/error_response.h"
#include "serve/openai/json.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

HttpResponse no_such_file(std::string why) {
  return error_response({.status = 404, .message = std::move(why), .code = "not_found"});
}

}  // namespace

void console_page(Service& service, const Exchange& exchange) { console_part(service, exchange, kConsolePage); }

void console_part(Service& service, const Exchange& exchange, std::string_view name) {
  constexpr size_t kMostShown = 128;
  if (!service.has_console()) {
    return exchange->respond(
        no_such_file("the console is switched off here (--no-webui); GET /openapi.json lists the endpoints"));
  }
  const ConsoleFile* const file = console_file(name);
  exchange->respond(file == nullptr ? no_such_file(fmt::format("the console has no file {}", quoted(name, kMostShown)))
                                    : console_answer(*file, exchange->request()));
}

void show_engine(Service& service, const Exchange& exchange) {
  service.probe(exchange, [&service](LLM& llm, const Exchange& e) {
    Json model = requests::model_json(llm.info());
    for (auto& note : model["notes"]) note = service.for_clients(note.get<std::string>());
    const EngineActivity activity = llm.activity();
    Json running = Json::array(), device_notes = Json::array();
    for (const auto& answer : activity.running) running.push_back(requests::running_answer_json(answer));
    for (const auto& note : llm.device_notes()) device_notes.push_back(service.for_clients(note));
    e->respond(json_response(dumped({{"model", std::move(model)},
                                     {"version", version()},
                                     {"stats", requests::stats_json(llm.stats())},
                                     {"running", std::move(running)},
                                     {"waiting", activity.waiting},
                                     {"waiting_adapters", activity.waiting_adapters},
                                     {"device_notes", std::move(device_notes)}})));
  });
}

}  // namespace choral::serve
