// What trainers ask of a server that makes their roll-outs: vLLM's /pause and its neighbours, as TRL's asynchronous trainers call
// them, and SGLang's routes for adapters.
#include <optional>

#include "base/printable.h"
#include "serve/http/error_response.h"
#include "serve/openai/adapter_calls.h"
#include "serve/openai/json.h"
#include "serve/routes/load_from.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

Result<bool> read_flag(std::string_view name, std::string_view value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  return invalid_argument("'{}' is {}; true or false is wanted", name, quoted(value, 40));
}

// "mode=keep&clear_cache=false". vLLM's own words; its default, and its older way to say "wait", too. What is computed already is
// kept by its content here, so that there is no cache to clear: either value of clear_cache is right.
Result<PauseMode> read_pause(std::string_view query) {
  std::optional<PauseMode> mode;
  bool waits = false;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    const std::string_view name = part.substr(0, part.find('='));
    const std::string_view value = part.substr(std::min(name.size() + 1, part.size()));
    if (name == "mode") {
      if (value == "keep") mode = PauseMode::kKeep;
      if (value == "wait") mode = PauseMode::kWait;
      if (value == "abort") mode = PauseMode::kAbort;
      if (!mode) return invalid_argument("'mode' is {}; choose keep, wait or abort", quoted(value, 40));
    } else if (name == "clear_cache") {
      CHORAL_RETURN_IF_ERROR(read_flag(name, value).status());
    } else if (name == "wait_for_inflight_requests") {
      CHORAL_TRY(waits, read_flag(name, value));
    } else {
      return invalid_argument("{} is not known here; these are: mode, clear_cache, wait_for_inflight_requests", quoted(name, 40));
    }
  }
  return mode.value_or(waits ? PauseMode::kWait : PauseMode::kAbort);
}

void say_status(const Exchange& e, std::string_view status) { e->respond(json_response(dumped({{"status", status}}))); }

// Where the others lie is nobody's business: their names stand there too.
Json loaded_adapters(const LLM& llm, const std::string& name, const std::string& path) {
  Json all = Json::object();
  const auto names = llm.adapter_names();
  for (const auto& adapter : *names) all[adapter->name] = adapter->name == name && !path.empty() ? path : adapter->name;
  return all;
}

// What was done, in SGLang's words; every refusal has one status there, and beside its words the error as elsewhere here.
void respond_as_sglang(const Exchange& e, const LLM& llm, HttpResponse done, const std::string& name, const std::string& path) {
  const bool success = done.status == 200;
  const std::string why = success || done.error == nullptr ? "" : done.error->message;
  Json body{{"success", success}, {"error_message", why}, {"loaded_adapters", loaded_adapters(llm, name, success ? path : "")}};
  if (!success) {
    done.status = 400;
    const Json said = Json::parse(done.body, nullptr, false);
    if (said.is_object() && said.contains("error")) body["error"] = said["error"];
  }
  done.body = dumped(body);
  done.headers.set("Content-Type", "application/json");
  e->respond(std::move(done));
}

}  // namespace

void pause_engine(Service& service, const Exchange& exchange) {
  const auto mode = read_pause(exchange->request().query);
  if (!mode.ok()) return exchange->respond(error_response(mode.status()));
  service.with_pause(exchange, [&service, mode = *mode](LLM&, const Exchange& e) {
    const Status paused = service.pause(mode);
    if (!paused.ok()) return e->respond(service.error(paused));
    say_status(e, "paused");
  });
}

void resume_engine(Service& service, const Exchange& exchange) {
  service.probe(exchange, [](LLM& llm, const Exchange& e) {
    llm.resume();
    say_status(e, "resumed");
  });
}

void show_paused(Service& service, const Exchange& exchange) {
  service.probe(exchange, [](LLM& llm, const Exchange& e) {
    e->respond(json_response(dumped({{"is_paused", llm.stats().is_paused}})));
  });
}

void show_world_size(Service&, const Exchange& exchange) { exchange->respond(json_response(dumped({{"world_size", 1}}))); }

void sglang_load_adapter(Service& service, const Exchange& exchange) {
  service.with_adapters(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    const auto call = read_body(service, e, notes, read_load_adapter_call);
    if (!call) return;
    e->note_adapter(call->name);
    respond_as_sglang(e, llm, load_from_path(service, *call), call->name, call->path);
  });
}

void sglang_unload_adapter(Service& service, const Exchange& exchange) {
  service.with_adapters(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    const auto call = read_body(service, e, notes, read_unload_adapter_call);
    if (!call) return;
    e->note_adapter(call->name);
    respond_as_sglang(e, llm, unload_named(service, *call), call->name, "");
  });
}

}  // namespace choral::serve
