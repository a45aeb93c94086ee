// Ollama's routes, for its clients: chats, texts, vectors, and what there is.
#include <algorithm>

#include "serve/http/error_response.h"
#include "serve/ollama/ollama_form.h"
#include "serve/openai/json.h"
#include "serve/routes/converse.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"
#include "serve/service/model_names.h"
#include "serve/usual_sampling.h"

namespace choral::serve {
namespace {

void answer_ollama(Service& service, LLM& llm, const Exchange& exchange, Result<OllamaCall> call, BodyNotes& notes) {
  if (call.ok() && call->asks_nothing) {
    service.warn(exchange, std::move(notes.warnings));
    return exchange->respond(json_response(ollama_loaded_json(answer_head(service, "", call->chat.model), *call)));
  }
  converse(
      service, llm, exchange, answer_id("ollama-", exchange), std::move(call), notes,
      [&service](const OllamaCall& c, AnswerHead head, const AnswerPlan& plan, const LLM&, const Exchange& e, LiveRequest live) {
        service.start(e, std::move(live), make_ollama_form(std::move(head), c, plan), c.chat.stream);
      });
}

void chat_of_ollama(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes{.strict = service.has_strict_fields()};
  auto call = read_ollama_chat(exchange->request().body, usual_sampling(llm), notes);
  answer_ollama(service, llm, exchange, std::move(call), notes);
}

void generate(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes{.strict = service.has_strict_fields()};
  auto call = read_ollama_generate(exchange->request().body, usual_sampling(llm), llm.info().has_chat_template, notes);
  answer_ollama(service, llm, exchange, std::move(call), notes);
}

void embed_for_ollama(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto call = read_body(service, exchange, notes, read_ollama_embed);
  if (!call) return;
  CallHead head;
  head.model = call->model;
  head.request = call->request;
  if (!prepare(service, exchange, head)) return;
  head.request.embedding = true;
  head.request.id = answer_id("ollama-", exchange);
  LiveRequest live;
  if (!submit(service, llm, exchange, head.model, head.request, std::move(call->inputs), live)) return;
  service.start(exchange, std::move(live), make_ollama_embedding_form(answer_head(service, head.request.id, head.model)),
                /*is_streamed=*/false);
}

// --- what there is ---

std::string parameters_text(int64_t parameters) {
  constexpr double kMillion = 1e6, kBillion = 1e9;
  const auto count = static_cast<double>(parameters);
  return count < kBillion ? fmt::format("{:.0f}M", count / kMillion) : fmt::format("{:.1f}B", count / kBillion);
}

Json details_json(const Service& service, const LLM& llm, bool is_adapter) {
  const ModelInfo& info = llm.info();
  Json families = Json::array();
  families.push_back(info.architecture);
  return {{"parent_model", is_adapter ? service.base_names().front() : ""},
          {"format", info.is_gguf && !is_adapter ? "gguf" : "safetensors"},
          {"family", info.architecture},
          {"families", std::move(families)},
          {"parameter_size", parameters_text(info.parameters)},
          {"quantization_level", info.layers.empty() ? "" : info.layers.front().scheme}};
}

struct ShownModel {
  std::string name, digest;
  int64_t bytes = 0;
  bool is_adapter = false, is_in_memory = true;
};

std::vector<ShownModel> shown_models(const Service& service, const LLM& llm) {
  std::vector<ShownModel> models;
  for (const auto& name : service.base_names()) models.push_back({.name = name, .digest = {}, .bytes = llm.info().weight_bytes});
  for (const auto& adapter : service.all_adapters())
    models.push_back({.name = adapter.name,
                      .digest = adapter.digest,
                      .bytes = adapter.size_bytes,
                      .is_adapter = true,
                      .is_in_memory = adapter.state == AdapterState::kResident});
  return models;
}

Json model_json_of(const Service& service, const LLM& llm, const ShownModel& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"size", model.bytes},
          {"digest", model.digest},
          {"details", details_json(service, llm, model.is_adapter)}};
}

// `more`: adds what a list tells beside. Those that it says no to are left out.
template <class More>
void list_for_ollama(Service& service, const Exchange& exchange, More more) {
  service.probe(exchange, [&service, more](LLM& llm, const Exchange& e) {
    Json list = Json::array();
    for (const auto& model : shown_models(service, llm)) {
      Json json = model_json_of(service, llm, model);
      if (more(llm, model, json)) list.push_back(std::move(json));
    }
    e->respond(json_response(dumped({{"models", std::move(list)}})));
  });
}

Json capabilities(const Service& service, const LLM& llm) {
  Json all = Json::array();
  all.push_back("completion");
  all.push_back("embedding");
  if (llm.info().has_chat_template && service.tool_setting(llm).knows_format) all.push_back("tools");
  if (service.thoughts() != nullptr) all.push_back("thinking");
  return all;
}

Json shown_json(const Service& service, const LLM& llm, bool is_adapter) {
  const ModelInfo& info = llm.info();
  const SamplingParams usual = usual_sampling(llm);
  return {{"modelfile", ""},
          {"license", ""},
          {"parameters", fmt::format("temperature {}\ntop_k {}\ntop_p {}", usual.temperature, usual.top_k, usual.top_p)},
          {"template", info.chat_template},
          {"modified_at", ollama_time(service.loaded_unix_s())},
          {"details", details_json(service, llm, is_adapter)},
          {"model_info",
           {{"general.architecture", info.architecture},
            {"general.basename", info.name},
            {"general.parameter_count", info.parameters},
            {fmt::format("{}.context_length", info.architecture), info.max_model_len},
            {fmt::format("{}.vocab_size", info.architecture), info.vocab_size}}},
          {"capabilities", capabilities(service, llm)}};
}

}  // namespace

void ollama_chat(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { chat_of_ollama(service, llm, e); });
}

void ollama_generate(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { generate(service, llm, e); });
}

void ollama_embed(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { embed_for_ollama(service, llm, e); });
}

void ollama_tags(Service& service, const Exchange& exchange) {
  list_for_ollama(service, exchange, [&service](const LLM&, const ShownModel&, Json& json) {
    json["modified_at"] = ollama_time(service.loaded_unix_s());
    return true;
  });
}

// What is in memory stays there: no time takes it away.
void ollama_ps(Service& service, const Exchange& exchange) {
  list_for_ollama(service, exchange, [](const LLM& llm, const ShownModel& model, Json& json) {
    json["expires_at"] = "9999-12-31T23:59:59Z";
    json["size_vram"] = 0;
    json["context_length"] = llm.info().max_model_len;
    return model.is_in_memory;
  });
}

void ollama_show(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    const auto model = read_body(service, e, notes, read_ollama_model);
    if (!model) return;
    const std::string_view adapter = adapter_named(*model, service.base_names());
    const auto names = service.adapter_names();
    if (!adapter.empty() && !std::binary_search(names->begin(), names->end(), adapter))
      return e->respond(service.unknown_model(*model));
    e->respond(json_response(dumped(shown_json(service, llm, !adapter.empty()))));
  });
}

}  // namespace choral::serve
