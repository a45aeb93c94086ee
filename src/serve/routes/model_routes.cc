#include "serve/http/error_response.h"
#include "serve/openai/calls.h"
#include "serve/openai/json.h"
#include "serve/routes/routes.h"
#include "serve/service/model_names.h"

namespace choral::serve {
namespace {

// vLLM's card. `root` is a name here and never a path.
Json card(const Service& service, const LLM& llm, const std::string& id, const std::string& root, const Json& parent) {
  return {{"id", id},     {"object", "model"}, {"created", service.loaded_unix_s()},       {"owned_by", "choral"},
          {"root", root}, {"parent", parent},  {"max_model_len", llm.info().max_model_len}};
}

Json adapter_card(const Service& service, const LLM& llm, const std::string& name) {
  return card(service, llm, name, name, service.base_names().front());
}

}  // namespace

void list_models(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& e) {
    Json data = Json::array();
    for (const auto& name : service.base_names()) data.push_back(card(service, llm, name, service.base_names().front(), nullptr));
    for (const auto& adapter : service.adapter_names()) data.push_back(adapter_card(service, llm, adapter));
    e->respond(json_response(dumped({{"object", "list"}, {"data", std::move(data)}})));
  });
}

void get_model(Service& service, const Exchange& exchange, std::string_view id) {
  service.with_model(exchange, [&service, id = std::string(id)](LLM& llm, const Exchange& e) {
    const std::string_view name = adapter_named(id, service.base_names());
    if (name.empty()) return e->respond(json_response(dumped(card(service, llm, id, service.base_names().front(), nullptr))));
    for (const auto& adapter : service.adapter_names()) {
      if (adapter == name) return e->respond(json_response(dumped(adapter_card(service, llm, adapter))));
    }
    e->respond(service.unknown_model(id));
  });
}

void tokenize(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& asked) {
    BodyNotes notes;
    auto call = read_tokenize_call(asked->request().body, notes);
    const Exchange e = service.warned_of(asked, std::move(notes.warnings));
    if (!call.ok()) return e->respond(service.error(call.status(), notes.param));
    std::string text;
    if (call->request.prompt) {
      text = *std::move(call->request.prompt);
    } else {
      auto rendered = llm.apply_chat_template(call->request);
      if (!rendered.ok()) return e->respond(service.error(rendered.status(), "messages"));
      text = *std::move(rendered);
      call->add_special_tokens = false;  // the template wrote them
    }
    const auto tokens = llm.tokenize(text, call->add_special_tokens);
    if (!tokens.ok()) return e->respond(service.error(tokens.status()));
    Json answer{{"count", tokens->size()}, {"max_model_len", llm.info().max_model_len}, {"tokens", *tokens}};
    if (call->return_token_strs) {
      Json& strings = answer["token_strs"] = Json::array();
      for (const int32_t id : *tokens) strings.push_back(llm.token_text(id));
    }
    e->respond(json_response(dumped(answer)));
  });
}

void detokenize(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& asked) {
    BodyNotes notes;
    const auto call = read_detokenize_call(asked->request().body, notes);
    const Exchange e = service.warned_of(asked, std::move(notes.warnings));
    if (!call.ok()) return e->respond(service.error(call.status(), notes.param));
    for (const int32_t id : call->tokens) {
      if (id < 0 || id >= llm.info().vocab_size)
        return e->respond(service.error(
            invalid_argument("'tokens' holds {}; the model has ids 0 to {}", id, llm.info().vocab_size - 1), "tokens"));
    }
    e->respond(json_response(dumped({{"prompt", llm.detokenize(call->tokens)}})));
  });
}

}  // namespace choral::serve
