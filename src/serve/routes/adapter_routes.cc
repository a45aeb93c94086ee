// Adapters while the server runs: vLLM's bodies and codes, llama.cpp's scales, and a list that says where each one is.
#include <ctime>

#include "base/clock.h"
#include "requests/engine_json.h"
#include "serve/http/error_response.h"
#include "serve/openai/adapter_calls.h"
#include "serve/openai/json.h"
#include "serve/routes/routes.h"
#include "serve/service/adapter_header.h"

namespace choral::serve {
namespace {

// With its error, but without paths.
Json described(const Service& service, const AdapterInfo& a) {
  Json entry = requests::adapter_json(a);
  entry["error"] = a.error.empty() ? Json(nullptr) : Json(service.without_paths(a.error));
  return entry;
}

std::optional<AdapterInfo> find_adapter(const LLM& llm, std::string_view name) {
  for (auto& adapter : llm.adapters()) {
    if (adapter.name == name) return std::move(adapter);
  }
  return std::nullopt;
}

// 404 when there is none of that name.
void unknown_adapter(Service& service, const Exchange& e, const std::string& name) { e->respond(service.unknown_model(name)); }

HttpResponse text_response(std::string text) {
  return {.status = 200, .headers = {{"Content-Type", "text/plain; charset=utf-8"}}, .body = std::move(text)};
}

// Another client was quicker than one that said what it expected to find.
HttpResponse stale(const Status& status) {
  return error_response({.status = 409, .message = status.message(), .code = "stale_generation", .param = "expected_generation"});
}

// Reads the body with `read`, then does `work` on what it says.
template <auto kRead, class Work>
void with_body(Service& service, const Exchange& exchange, Work work) {
  service.with_adapters(exchange, [&service, work](LLM& llm, const Exchange& asked) {
    BodyNotes notes;
    const auto call = kRead(asked->request().body, notes);
    const Exchange e = service.warned_of(asked, std::move(notes.warnings));
    if (!call.ok()) return e->respond(service.error(call.status(), notes.param));
    work(service, llm, e, *call);
  });
}

void load(Service& service, LLM& llm, const Exchange& e, const LoadAdapterCall& call) {
  const auto place = service.adapter_path(call.path);
  if (!place.ok()) return e->respond(service.error(place.status(), "lora_path"));
  const double begin = now_s();
  const Status loaded =
      llm.load_adapter({.name = call.name, .path = *place, .pinned = call.pinned}, call.load_inplace, call.expected_generation);
  if (loaded.code() == Code::kAlreadyExists && call.expected_generation) return e->respond(stale(loaded));
  if (loaded.code() == Code::kAlreadyExists) {
    return e->respond(
        error_response({.status = 400,
                        .message = fmt::format("adapter '{}' is already loaded; send load_inplace to replace it", call.name),
                        .code = "already_exists",
                        .param = "lora_name"}));
  }
  if (!loaded.ok()) return e->respond(service.error(loaded, "lora_path"));
  service.metrics()->adapter_loaded(now_s() - begin);
  const auto now = find_adapter(llm, call.name);
  if (auto* const registered = service.registered()) {
    const Status kept = registered->put({.name = call.name,
                                         .path = *place,
                                         .pinned = call.pinned,
                                         .generation = now ? now->generation : 0,
                                         .digest = now ? now->digest : "",
                                         .added_unix_s = std::time(nullptr)});
    if (!kept.ok())
      return e->respond(service.error(Status(kept).while_("the adapter is loaded, but will not be after a restart")));
  }
  HttpResponse response = text_response(fmt::format("Success: LoRA adapter '{}' added successfully.", call.name));
  if (now) add_adapter_header(now->name, now->generation, now->digest, response.headers);
  e->respond(std::move(response));
}

void unload(Service& service, LLM& llm, const Exchange& e, const AdapterNameCall& call) {
  const Status gone = llm.unload_adapter(call.name, call.expected_generation);
  if (gone.code() == Code::kNotFound) return unknown_adapter(service, e, call.name);
  if (gone.code() == Code::kAlreadyExists) return e->respond(stale(gone));
  if (!gone.ok()) return e->respond(service.error(gone, "lora_name"));
  if (auto* const registered = service.registered()) {
    const Status forgotten = registered->remove(call.name);
    if (!forgotten.ok())
      return e->respond(service.error(Status(forgotten).while_("the adapter is gone, but will be back after a restart")));
  }
  e->respond(text_response(fmt::format("Success: LoRA adapter '{}' removed successfully.", call.name)));
}

void pin(Service& service, LLM& llm, const Exchange& e, const std::string& name, bool pinned) {
  const Status done = llm.pin_adapter(name, pinned);
  if (done.code() == Code::kNotFound) return unknown_adapter(service, e, name);
  if (!done.ok()) return e->respond(service.error(done, "lora_name"));
  if (auto* const registered = service.registered()) {
    const Status kept = registered->set_pinned(name, pinned);
    if (!kept.ok()) return e->respond(service.error(Status(kept).while_("the pin will not be there after a restart")));
  }
  const auto adapter = find_adapter(llm, name);
  e->respond(json_response(dumped(adapter ? described(service, *adapter) : Json::object())));
}

}  // namespace

void list_adapters(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& e) {
    Json data = Json::array();
    for (const auto& adapter : service.all_adapters()) data.push_back(described(service, adapter));
    const EngineStats stats = llm.stats();
    e->respond(json_response(dumped({{"object", "list"},
                                     {"data", std::move(data)},
                                     {"resident_bytes", stats.adapter_bytes},
                                     {"budget_bytes", stats.adapter_budget_bytes}})));
  });
}

void load_adapter(Service& service, const Exchange& exchange) { with_body<read_load_adapter_call>(service, exchange, load); }

void unload_adapter(Service& service, const Exchange& exchange) {
  with_body<read_unload_adapter_call>(service, exchange, unload);
}

void pin_adapter(Service& service, const Exchange& exchange) {
  with_body<read_adapter_name_call>(service, exchange, [](Service& s, LLM& llm, const Exchange& e, const AdapterNameCall& call) {
    pin(s, llm, e, call.name, true);
  });
}

void unpin_adapter(Service& service, const Exchange& exchange) {
  with_body<read_adapter_name_call>(service, exchange, [](Service& s, LLM& llm, const Exchange& e, const AdapterNameCall& call) {
    pin(s, llm, e, call.name, false);
  });
}

void list_adapter_scales(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& e) {
    Json list = Json::array();
    const auto applied = service.base_adapters();
    for (const auto& adapter : llm.adapters()) {
      const auto use = std::find_if(applied.begin(), applied.end(), [&](const AdapterUse& u) { return u.name == adapter.name; });
      list.push_back({{"id", adapter.id}, {"path", adapter.name}, {"scale", use == applied.end() ? 0.0f : use->scale}});
    }
    e->respond(json_response(dumped(list)));
  });
}

void set_adapter_scales(Service& service, const Exchange& exchange) {
  with_body<read_adapter_scales_call>(
      service, exchange, [](Service& s, LLM& llm, const Exchange& e, const std::vector<AdapterScale>& scales) {
        std::vector<AdapterUse> uses;
        for (const auto& [id, scale] : scales) {
          const auto adapters = llm.adapters();
          const auto found = std::find_if(adapters.begin(), adapters.end(), [id = id](const auto& a) { return a.id == id; });
          if (found == adapters.end())
            return e->respond(s.error(invalid_argument("no adapter has id {}; GET /lora-adapters lists them", id), "id"));
          if (scale != 0) uses.push_back({found->name, scale});
        }
        s.set_base_adapters(std::move(uses));
        e->respond(json_response(R"({"success":true})"));
      });
}

}  // namespace choral::serve
