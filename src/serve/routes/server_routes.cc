// What other servers tell of themselves: llama.cpp's /props and /slots, vLLM's /server_info and /load.
#include <algorithm>
#include <limits>

#include "requests/engine_json.h"
#include "serve/http/error_response.h"
#include "serve/native/generation_settings.h"
#include "serve/openai/json.h"
#include "serve/routes/routes.h"
#include "serve/usual_sampling.h"

namespace choral::serve {
namespace {

Json slot_json(const LLM& llm, int64_t id, bool is_processing) {
  return {{"id", id},
          {"n_ctx", llm.info().max_model_len},
          {"speculative", llm.info().most_guessed > 0},
          {"is_processing", is_processing}};
}

Json props(const Service& service, const LLM& llm) {
  NativeCall usual;
  usual.request.sampling = usual_sampling(llm);
  usual.request.sampling.max_tokens = 0;
  Json settings = slot_json(llm, 0, false);
  settings["params"] = generation_settings(usual, {});
  const ModelInfo& info = llm.info();
  return {{"default_generation_settings", std::move(settings)},
          {"total_slots", service.most_answers_at_once()},
          {"model_alias", service.base_names().front()},
          {"model_path", info.name},  // a name: where it lies is nobody's business
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", info.chat_template},
          {"bos_token", info.bos_token},
          {"eos_token", info.eos_token},
          {"build_info", fmt::format("choral {}", version())},
          {"is_sleeping", false}};
}

bool asks(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    if (part.starts_with(name) && part.substr(name.size()) == "=1") return true;
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return false;
}

// The part of vLLM's configuration that trainers look at before they send adapters: TRL's asynchronous ones do.
Json vllm_config(const Service& service, const LLM& llm) {
  const auto& limits = service.adapter_limits();
  const int64_t most = limits.most_at_once > 0 ? limits.most_at_once : std::numeric_limits<int32_t>::max();
  return {{"model_config", {{"model", service.base_names().front()}, {"max_model_len", llm.info().max_model_len}}},
          {"lora_config", {{"max_lora_rank", limits.most_rank}, {"max_loras", most}}},
          {"parallel_config",
           {{"tensor_parallel_size", llm.info().ranks}, {"pipeline_parallel_size", 1}, {"data_parallel_size", 1}}}};
}

}  // namespace

void show_props(Service& service, const Exchange& exchange) {
  service.probe(exchange, [&service](LLM& llm, const Exchange& e) { e->respond(json_response(dumped(props(service, llm)))); });
}

// Answers have no slots of their own here: as many say that they are busy as answers are made now.
void show_slots(Service& service, const Exchange& exchange) {
  service.probe(exchange, [&service](LLM& llm, const Exchange& e) {
    const EngineStats stats = llm.stats();
    const int64_t slots = service.most_answers_at_once();
    if (asks(e->request().query, "fail_on_no_slot") && stats.running >= slots)
      return e->respond(error_response(unavailable("all {} places for answers are taken", slots)));
    Json list = Json::array();
    for (int64_t id = 0; id < slots; ++id) list.push_back(slot_json(llm, id, id < stats.running));
    e->respond(json_response(dumped(list)));
  });
}

void show_server_info(Service& service, const Exchange& exchange) {
  service.probe(exchange, [&service](LLM& llm, const Exchange& e) {
    Json model = requests::model_json(llm.info());
    for (auto& note : model["notes"]) note = service.for_clients(note.get<std::string>());
    e->respond(json_response(dumped({{"version", version()},
                                     {"served_model_names", service.base_names()},
                                     {"system_fingerprint", service.system_fingerprint()},
                                     {"max_num_seqs", service.most_answers_at_once()},
                                     {"model", std::move(model)},
                                     {"vllm_config", vllm_config(service, llm)}})));
  });
}

void show_load(Service& service, const Exchange& exchange) {
  service.probe(exchange, [](LLM& llm, const Exchange& e) {
    const EngineStats stats = llm.stats();
    e->respond(json_response(dumped({{"server_load", stats.running + stats.waiting}})));
  });
}

}  // namespace choral::serve
