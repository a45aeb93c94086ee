// Adapters while the server runs: vLLM's bodies and codes, llama.cpp's scales, and a list that says where each one is.
#include <algorithm>
#include <map>

#include "base/clock.h"
#include "lora/peft/adapter_name.h"
#include "requests/engine_json.h"
#include "serve/http/error_response.h"
#include "serve/openai/adapter_calls.h"
#include "serve/openai/adapter_form.h"
#include "serve/openai/json.h"
#include "serve/routes/load_from.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"
#include "serve/service/adapter_header.h"
#include "serve/service/client_text.h"

namespace choral::serve {
namespace {

// With its error, as clients may see it, and with what the catalogue says of it, where there is one that names it.
Json described(const Service& service, const AdapterInfo& a) {
  Json entry = requests::adapter_json(a);
  entry["error"] = a.error.empty() ? Json(nullptr) : Json(service.for_clients(a.error));
  const auto catalogue = service.catalogue();
  const bool is_named = catalogue != nullptr && catalogue->places.contains(a.name);
  const std::string digest = is_named ? catalogue->places.at(a.name).digest : "";
  entry["catalogue_digest"] = digest.empty() ? Json(nullptr) : Json(digest);
  Json earlier = Json::array();
  for (const auto& one : a.earlier) {
    earlier.push_back({{"generation", one.generation},
                       {"digest", one.digest},
                       {"state", adapter_state_name(one.state)},
                       {"in_use", one.in_use}});
  }
  entry["earlier"] = std::move(earlier);
  entry["drift"] = is_named ? Json(has_drifted(a, *catalogue)) : Json(nullptr);
  return entry;
}

// Null: none is followed.
Json catalogue_json(const Service& service, std::span<const AdapterInfo> adapters) {
  const auto catalogue = service.catalogue();
  if (catalogue == nullptr) return nullptr;
  const auto state = service.catalogue_state();
  Json drifted = Json::array();
  for (const auto& adapter : adapters) {
    if (has_drifted(adapter, *catalogue)) drifted.push_back(adapter.name);
  }
  return {{"adapters", catalogue->places.size() + catalogue->faults.size()},
          {"drifted", std::move(drifted)},
          {"read", state.read_unix_s},
          {"error", state.error.empty() ? Json(nullptr) : Json(service.for_clients(state.error))}};
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
  service.with_adapters(exchange, [&service, work](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    const auto call = read_body(service, e, notes, kRead);
    if (!call) return;
    work(service, llm, e, *call);
  });
}

void load(Service& service, LLM&, const Exchange& e, const LoadAdapterCall& call) {
  e->note_adapter(call.name);
  e->respond(load_from_path(service, call));
}

void unload(Service& service, LLM&, const Exchange& e, const AdapterNameCall& call) {
  e->note_adapter(call.name);
  e->respond(unload_named(service, call));
}

void pin(Service& service, LLM&, const Exchange& e, const std::string& name, bool pinned) {
  e->note_adapter(name);
  auto adapter = service.adapter_changes().pin(name, pinned);
  if (adapter.status().code() == Code::kNotFound) return unknown_adapter(service, e, name);
  if (!adapter.ok()) return e->respond(service.error(adapter.status(), "lora_name"));
  adapter->id = service.adapter_numbers().number_of(name).value_or(-1);
  e->respond(json_response(dumped(described(service, *adapter))));
}

// What it changes, as its files say now.
void show_effect(Service& service, LLM& llm, const Exchange& e, const std::string& name) {
  if (!lora::check_adapter_name(name).ok()) return unknown_adapter(service, e, name);
  const auto layers = llm.adapter_layers(name);
  if (layers.status().code() == Code::kNotFound) return unknown_adapter(service, e, name);
  if (!layers.ok()) {
    ApiError error = api_error(layers.status());
    error.message = service.for_clients(error.message);
    return e->respond(error_response(adapter_error(std::move(error))));
  }
  Json modules = Json::array();
  for (const auto& layer : *layers) modules.push_back(requests::adapter_layer_json(layer));
  e->respond(json_response(dumped({{"object", "adapter_effect"}, {"name", name}, {"modules", std::move(modules)}})));
}

void show_adapter(Service& service, const Exchange& e, const std::string& name) {
  const auto all = service.all_adapters();
  const auto found = std::ranges::find(all, name, &AdapterInfo::name);
  if (found == all.end()) return unknown_adapter(service, e, name);
  e->respond(json_response(dumped(described(service, *found))));
}

// Of an error about files that lie there: the client knows which adapter it sent, or named.
Status without_place(const Status& status, const std::string& place) {
  std::string message = status.message();
  replace_all(message, fmt::format(" ({})", place), "");
  replace_all(message, place + "/", "");
  return Status(status.code(), std::move(message));
}

// Null: none are taken.
Json room_for_uploads(const Service& service) {
  const AdapterUploads* const uploads = service.adapter_uploads();
  if (uploads == nullptr) return nullptr;
  return {{"held_bytes", uploads->held_bytes()}, {"most_bytes", uploads->most_bytes()}};
}

}  // namespace

HttpResponse already_loaded(const std::string& name) {
  return error_response({.status = 400,
                         .message = fmt::format("adapter '{}' is already loaded; send load_inplace to replace it", name),
                         .code = "already_exists",
                         .param = "lora_name"});
}

HttpResponse load_from(Service& service, const LoadAdapterCall& call, const std::string& place, std::string_view param) {
  const double begin = now_s();
  const auto now = service.adapter_changes().load({.name = call.name, .path = place, .pinned = call.pinned}, call.load_inplace,
                                                  call.expected_generation);
  const Status& loaded = now.status();
  if (loaded.code() == Code::kAlreadyExists && call.expected_generation) return stale(loaded);
  if (loaded.code() == Code::kAlreadyExists) return already_loaded(call.name);
  if (!loaded.ok()) return service.error(without_place(loaded, place), param);
  service.metrics()->adapter_loaded(now_s() - begin);
  HttpResponse response = text_response(fmt::format("Success: LoRA adapter '{}' added successfully.", call.name));
  add_adapter_header(now->name, now->generation, now->digest, response.headers);
  return response;
}

HttpResponse load_from_path(Service& service, const LoadAdapterCall& call) {
  const auto place = service.adapter_path(call.path);
  if (!place.ok()) return service.error(place.status(), "lora_path");
  return load_from(service, call, *place, "lora_path");
}

HttpResponse unload_named(Service& service, const AdapterNameCall& call) {
  const Status gone = service.adapter_changes().unload(call.name, call.expected_generation);
  if (gone.code() == Code::kNotFound) return service.unknown_model(call.name);
  if (gone.code() == Code::kAlreadyExists) return stale(gone);
  if (!gone.ok()) return service.error(gone, "lora_name");
  service.drop_base_adapter(call.name);
  return text_response(fmt::format("Success: LoRA adapter '{}' removed successfully.", call.name));
}

void get_adapter(Service& service, const Exchange& exchange, std::string_view path) {
  constexpr std::string_view kEffect = "/effect";
  if (!path.ends_with(kEffect))
    return service.with_model(exchange,
                              [&service, name = std::string(path)](LLM&, const Exchange& e) { show_adapter(service, e, name); });
  path.remove_suffix(kEffect.size());
  service.with_adapter_files(
      exchange, [&service, name = std::string(path)](LLM& llm, const Exchange& e) { show_effect(service, llm, e, name); });
}

void list_adapters(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& e) {
    Json data = Json::array();
    const auto adapters = service.all_adapters();
    for (const auto& adapter : adapters) data.push_back(described(service, adapter));
    const EngineStats stats = llm.stats();
    e->respond(json_response(dumped({{"object", "list"},
                                     {"data", std::move(data)},
                                     {"resident_bytes", stats.adapter_bytes},
                                     {"budget_bytes", stats.adapter_budget_bytes},
                                     {"uploads", room_for_uploads(service)},
                                     {"catalogue", catalogue_json(service, adapters)}})));
  });
}

void load_adapter(Service& service, const Exchange& exchange) {
  if (is_form(exchange->request().headers.get("Content-Type"))) return load_adapter_form(service, exchange);
  with_body<read_load_adapter_call>(service, exchange, load);
}

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
  service.with_model(exchange, [&service](LLM&, const Exchange& e) {
    std::map<int32_t, Json> by_number;
    const auto applied = service.base_adapters();
    const auto names = service.adapter_names();
    service.adapter_numbers().add(*names);
    for (const auto& name : *names) {
      const auto number = service.adapter_numbers().number_of(name);
      if (!number) continue;
      const auto use = std::find_if(applied.begin(), applied.end(), [&](const AdapterUse& u) { return u.name == name; });
      by_number[*number] = {{"id", *number}, {"path", name}, {"scale", use == applied.end() ? 0.0f : use->scale}};
    }
    Json list = Json::array();
    for (auto& [number, entry] : by_number) list.push_back(std::move(entry));
    e->respond(json_response(dumped(list)));
  });
}

void set_adapter_scales(Service& service, const Exchange& exchange) {
  with_body<read_adapter_scales_call>(
      service, exchange, [](Service& s, LLM&, const Exchange& e, const std::vector<AdapterScale>& scales) {
        const auto known = s.adapter_names();
        std::vector<AdapterUse> uses;
        for (const auto& [id, scale] : scales) {
          const auto name = s.adapter_numbers().name_of(id);
          if (!name || !std::binary_search(known->begin(), known->end(), *name))
            return e->respond(s.error(invalid_argument("no adapter has id {}; GET /lora-adapters lists them", id), "id"));
          if (scale != 0) uses.push_back({*name, scale});
        }
        const Status set = s.set_base_adapters(std::move(uses));
        e->respond(set.ok() ? json_response(R"({"success":true})") : s.error(set, "scale"));
      });
}

}  // namespace choral::serve
