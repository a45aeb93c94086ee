// Responses that were stored: shown, cancelled, deleted, and what they were asked.
#include <algorithm>
#include <charconv>
#include <optional>

#include "serve/http/error_response.h"
#include "serve/list_page.h"
#include "serve/openai/json.h"
#include "serve/openai/response_form.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

// What the path says behind /v1/responses/: "ID", "ID/cancel".
struct ResponsePath {
  std::string id;
  std::string_view rest;
};
ResponsePath response_path(std::string_view path) {
  const size_t slash = std::min(path.find('/'), path.size());
  return {std::string(path.substr(0, slash)), path.substr(slash)};
}

void no_such_response(const Exchange& exchange, std::string_view id) {
  exchange->respond(error_response({.status = 404,
                                    .message = fmt::format("there is no response '{}' here, or no more", shown(id)),
                                    .code = "not_found",
                                    .param = "response_id"}));
}

// A stored response, and what computes it now; null: nothing does.
struct FoundResponse {
  StoredResponse stored;
  std::shared_ptr<BackgroundExchange> running;
};

// Runs `use` with the response on a reader's thread, or answers why not.
template <class Use>
void with_response(Service& service, const Exchange& exchange, const std::string& id, Use use) {
  service.with_model(exchange, [&service, id, use](LLM&, const Exchange& e) {
    if (service.responses() == nullptr)
      return e->respond(service.error(
          unsupported("no responses are stored here: start the server with --state-dir and --store-responses"), "response_id"));
    // First, as the end of a response is stored before nothing computes it any more.
    auto running = service.background().find(id);
    auto found = service.responses()->find(id, service.owner(e->request()));
    if (!found.ok()) return e->respond(service.error(found.status()));
    if (!*found) return no_such_response(e, id);
    use(e, FoundResponse{*std::move(*found), std::move(running)});
  });
}

// As it is now. One that ran when the server ended runs no more.
Json current(const FoundResponse& found) {
  Json response = Json::parse(found.stored.response_json);
  if (!found.stored.is_running) return response;
  if (found.running) {
    if (found.running->has_begun()) response["status"] = "in_progress";
    return response;
  }
  response["status"] = "failed";
  response["error"] = response_error({.message = "the server ended before this response did", .code = "unavailable"});
  return response;
}

// The number of the event behind which a stream goes on; -1: it begins. Nothing: no stream is wanted.
Result<std::optional<int64_t>> wanted_events(std::string_view query) {
  const std::string_view stream = query_parameter(query, "stream"), after = query_parameter(query, "starting_after");
  if (stream != "true") {
    if (!after.empty()) return invalid_argument("'starting_after' is for a stream: say 'stream=true' too");
    if (!stream.empty() && stream != "false") return invalid_argument("'stream' is true or false, not '{}'", shown(stream));
    return std::optional<int64_t>();
  }
  int32_t number = -1;
  const auto [end, error] = std::from_chars(after.data(), after.data() + after.size(), number);
  const bool is_number = error == std::errc() && end == after.data() + after.size() && number >= 0;
  if (!after.empty() && !is_number)
    return invalid_argument("'starting_after' is an event's sequence_number, not '{}'", shown(after));
  return std::optional<int64_t>(number);
}

void show_events(Service& service, const Exchange& exchange, const std::string& id, int64_t after) {
  const auto events = service.response_events().find(id);
  if (events == nullptr)
    return exchange->respond(service.error(
        unsupported(
            "no events of this response are kept: it was not asked for with 'background' and 'stream', or they had to make "
            "room; leave 'stream' out for the response itself"),
        "stream"));
  if (!events->follow(exchange, after))
    exchange->respond(service.error(
        unsupported("the events behind number {} are not kept any more; leave 'stream' out for the response itself", after),
        "starting_after"));
}

Result<std::string> input_page(const StoredResponse& stored, std::string_view query) {
  CHORAL_TRY(const ListPage page, read_list_page(query, {.limit = 20}, 100));
  const std::string& after = page.after;
  Json items = std::move(Json::parse(stored.input_json)["input"]);
  if (!page.oldest_first) std::reverse(items.begin(), items.end());
  size_t at = 0;
  if (!after.empty()) {
    while (at < items.size() && items[at]["id"] != after) ++at;
    if (at++ == items.size()) return invalid_argument("'after' names no item of this response");
  }
  Json data = Json::array();
  for (; at < items.size() && std::ssize(data) < page.limit; ++at) data.push_back(std::move(items[at]));
  const bool has_more = at < items.size();
  const std::string first = data.empty() ? "" : data.front()["id"].get<std::string>();
  const std::string last = data.empty() ? "" : data.back()["id"].get<std::string>();
  return dumped({{"object", "list"}, {"data", std::move(data)}, {"first_id", first}, {"last_id", last}, {"has_more", has_more}});
}

void show_response(Service& service, const Exchange& exchange, const FoundResponse& found) {
  const auto wanted = wanted_events(exchange->request().query);
  if (!wanted.ok()) return exchange->respond(service.error(wanted.status(), "stream"));
  if (*wanted) return show_events(service, exchange, found.stored.id, **wanted);
  exchange->respond(json_response(dumped(current(found))));
}

void show_input(Service& service, const Exchange& exchange, const FoundResponse& found) {
  auto page = input_page(found.stored, exchange->request().query);
  if (!page.ok()) return exchange->respond(service.error(page.status()));
  exchange->respond(json_response(*std::move(page)));
}

// One that has ended stays as it is.
void cancel(Service& service, const Exchange& exchange, const FoundResponse& found) {
  const StoredResponse& stored = found.stored;
  Json response = Json::parse(stored.response_json);
  if (response["background"] != true)
    return exchange->respond(
        service.error(invalid_argument("only a response that was asked for with 'background' can be cancelled"), "response_id"));
  response["status"] = "cancelled";
  const auto cancelled = service.responses()->finish(stored.id, stored.owner, dumped(response));
  if (!cancelled.ok()) return exchange->respond(service.error(cancelled.status()));
  if (found.running) found.running->cancel();
  if (*cancelled) return exchange->respond(json_response(dumped(response)));
  const auto ended = service.responses()->find(stored.id, stored.owner);
  if (!ended.ok()) return exchange->respond(service.error(ended.status()));
  if (!*ended) return no_such_response(exchange, stored.id);
  exchange->respond(json_response((*ended)->response_json));
}

void remove(Service& service, const Exchange& exchange, const FoundResponse& found) {
  const StoredResponse& stored = found.stored;
  const auto removed = service.responses()->remove(stored.id, stored.owner);
  if (!removed.ok()) return exchange->respond(service.error(removed.status()));
  if (found.running) found.running->cancel();
  service.response_events().remove(stored.id);
  exchange->respond(json_response(dumped({{"id", stored.id}, {"object", "response"}, {"deleted", true}})));
}

// A path below a response that is none.
void no_such_path(const Exchange& exchange) {
  exchange->respond(error_response({.status = 404,
                                    .message = "there is no such part of a response; GET /openapi.json lists the endpoints",
                                    .code = "not_found"}));
}

}  // namespace

void get_response(Service& service, const Exchange& exchange, std::string_view path) {
  const auto [id, rest] = response_path(path);
  if (!rest.empty() && rest != "/input_items") return no_such_path(exchange);
  with_response(service, exchange, id, [&service, is_input = !rest.empty()](const Exchange& e, const FoundResponse& found) {
    if (is_input) return show_input(service, e, found);
    show_response(service, e, found);
  });
}

void post_response(Service& service, const Exchange& exchange, std::string_view path) {
  const auto [id, rest] = response_path(path);
  if (rest != "/cancel") return no_such_path(exchange);
  with_response(service, exchange, id, [&service](const Exchange& e, const FoundResponse& found) { cancel(service, e, found); });
}

void delete_response(Service& service, const Exchange& exchange, std::string_view path) {
  const auto [id, rest] = response_path(path);
  if (!rest.empty()) return no_such_path(exchange);
  with_response(service, exchange, id, [&service](const Exchange& e, const FoundResponse& found) { remove(service, e, found); });
}

}  // namespace choral::serve
