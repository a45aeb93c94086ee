#include "serve/routes/response_keeping.h"

#include <utility>

#include "base/log.h"
#include "serve/http/error_response.h"
#include "serve/http/sse.h"

namespace choral::serve {
namespace {

// The stored response with another end than its own; `events` may be null.
void finish_otherwise(Service& service, const std::string& id, const std::string& owner, ResponseEvents* events,
                      const ApiError& error) {
  const auto stored = service.responses()->find(id, owner);
  if (!stored.ok() || !*stored) return;
  Json response = Json::parse((*stored)->response_json);
  response["status"] = "failed";
  response["error"] = response_error(error);
  const auto done = service.responses()->finish(id, owner, dumped(response));
  if (!done.ok()) CHORAL_LOG(kError, "response {} is not stored: {}", id, done.status().message());
  if (events == nullptr) return;
  constexpr std::string_view kFailed = "response.failed";
  events->append(sse_event(kFailed, dumped({{"type", kFailed}, {"sequence_number", events->next()}, {"response", response}})));
  events->close();
}

}  // namespace

ResponseMemory response_memory(Service& service, const Exchange& exchange) {
  if (service.responses() == nullptr) return {};
  return {.stores = true,
          .earlier = [&service,
                      owner = service.owner(exchange->request())](const std::string& id) -> Result<std::vector<EarlierTurn>> {
            CHORAL_TRY(auto turns, service.responses()->conversation(id, owner));
            if (turns.back().is_running)
              return invalid_argument("the response '{}' has not ended; GET /v1/responses/ID tells when it has", shown(id));
            std::vector<EarlierTurn> earlier;
            for (auto& turn : turns) earlier.push_back({std::move(turn.input_json), std::move(turn.response_json)});
            return earlier;
          }};
}

KeepResponse response_keeper(Service& service, const Exchange& exchange, const ResponseCall& call) {
  if (!call.store) return {};
  StoredResponse response{.id = call.chat.request.id,
                          .owner = service.owner(exchange->request()),
                          .input_json = call.input_json,
                          .previous_id = call.previous_id};
  return [&service, in_background = call.background, response](const std::string& json) {
    ResponseStore& store = *service.responses();
    StoredResponse ended = response;
    ended.response_json = json;
    const Status status = in_background ? store.finish(response.id, response.owner, json).status() : store.put(ended);
    if (!status.ok()) CHORAL_LOG(kError, "response {} is not stored: {}", response.id, status.message());
  };
}

void start_in_background(Service& service, const Exchange& exchange, const ResponseCall& call, LiveRequest live,
                         std::unique_ptr<ResponseAnswerForm> form) {
  const std::string id = call.chat.request.id, owner = service.owner(exchange->request());
  std::string queued = form->begun("queued");
  const Status stored = service.responses()->put({.id = id,
                                                  .owner = owner,
                                                  .response_json = queued,
                                                  .input_json = call.input_json,
                                                  .previous_id = call.previous_id,
                                                  .is_running = true});
  if (!stored.ok()) return exchange->respond(service.error(stored));
  const auto events = call.chat.stream ? service.response_events().add(id) : nullptr;
  const auto hidden = std::make_shared<BackgroundExchange>(
      exchange, events,
      [&service, id, owner, events](const ApiError& error) { finish_otherwise(service, id, owner, events.get(), error); });
  service.background().add(id, hidden);
  if (events == nullptr) {
    exchange->respond(json_response(std::move(queued)));
  } else {
    events->append(form->queued());
    events->follow(exchange, -1);
  }
  // The client's exchange logs the request, with what is found out of its answer.
  const auto told = [exchange](const AnsweredRequest& answered) {
    if (answered.notes.usage) exchange->note_end(*answered.notes.usage, answered.notes.reason);
  };
  service.start(std::make_shared<ObservedExchange>(hidden, Dialect::kOpenAI, told), std::move(live), std::move(form),
                /*is_streamed=*/true);
}

}  // namespace choral::serve
