#include <algorithm>

#include "base/utf8.h"
#include "serve/anthropic/message_call.h"
#include "serve/http/error_response.h"
#include "serve/keys/token_charge.h"
#include "serve/native/prompt_parts.h"
#include "serve/openai/calls.h"
#include "serve/openai/json.h"
#include "serve/routes/call_plan.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"
#include "serve/service/model_names.h"
#include "serve/usual_sampling.h"

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

// A call about texts and tokens that was let in.
struct TextCall {
  std::shared_ptr<const Vocabulary> vocabulary;  // of the model that it names
  int64_t most_tokens = 0;
  RequestLimits::Grant grant;
};

// Charges what the request's prompt may come to. Nothing: the exchange is answered with why not.
std::optional<TextCall> begin_text(Service& service, LLM& llm, const Exchange& e, const std::string& model, Request& request,
                                   std::span<const Prompt> texts = {}) {
  constexpr int64_t kContexts = 8;  // enough to see what of a long text fits; answers of any size are an admin's
  TextCall text;
  text.most_tokens = service.is_admins(e->request()) ? INT64_MAX : kContexts * llm.info().max_model_len;
  service.put_model(model, /*has_lora=*/false, request);
  e->note_model(model.empty() ? service.base_names().front() : model, request.adapters);
  const int64_t expected = tokens_to_read(request, texts, text.most_tokens);
  if (auto refused = service.admit(e, request.adapters, expected, text.grant)) {
    e->respond(*std::move(refused));
    return std::nullopt;
  }
  auto vocabulary = llm.vocabulary(request.adapters);
  if (!vocabulary.ok()) {
    const bool is_unknown = vocabulary.status().code() == Code::kNotFound && !request.adapters.empty();
    e->respond(is_unknown ? service.unknown_model(model.empty() ? request.adapters.front().name : model)
                          : service.error(vocabulary.status()));
    return std::nullopt;
  }
  text.vocabulary = *std::move(vocabulary);
  text.grant.settle(expected);  // what it comes to where it fails
  return text;
}

void settle(TextCall& text, const Exchange& e, int64_t tokens) {
  text.grant.settle(tokens);
  e->note_end({.prompt_tokens = tokens}, "");
}

Result<std::string> text_of(const LLM& llm, const Request& request) {
  if (request.prompt) return *request.prompt;
  return llm.apply_chat_template(request);
}

Status too_many(Status status, int64_t most_tokens) {
  if (status.code() != Code::kTooLarge || most_tokens == INT64_MAX) return status;
  return too_large("{}; at most {}, eight contexts, are taken at once without an admin's key", status.message(), most_tokens);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const uint32_t length = check_utf8(text).length;
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// A text where the token alone is one, else its bytes, as llama.cpp has it.
Json piece_json(const Vocabulary& vocabulary, int32_t id) {
  const std::string bytes = vocabulary.token_bytes(id);
  Json json{{"id", id}};
  if (is_utf8(bytes)) {
    json["piece"] = bytes;
  } else {
    for (const char c : bytes) json["piece"].push_back(static_cast<unsigned char>(c));
  }
  return json;
}

void tokenize_content(Service& service, LLM& llm, const Exchange& e, TokenizeCall& call) {
  auto text = begin_text(service, llm, e, call.model, call.request, *call.content);
  if (!text) return;
  const auto most = static_cast<size_t>(text->most_tokens);
  const auto tokens = tokens_of_parts(*call.content, *text->vocabulary, call.add_special_tokens, call.parse_special, most);
  if (!tokens.ok()) return e->respond(service.error(too_many(tokens.status(), text->most_tokens), "content"));
  settle(*text, e, std::ssize(*tokens));
  Json list = Json::array();
  for (const int32_t id : *tokens) list.push_back(call.with_pieces ? piece_json(*text->vocabulary, id) : Json(id));
  e->respond(json_response(dumped({{"tokens", std::move(list)}})));
}

}  // namespace

void list_models(Service& service, const Exchange& exchange) {
  service.with_model(exchange, [&service](LLM& llm, const Exchange& e) {
    const auto body = service.written_for_names([&](const std::vector<std::string>& adapters) {
      Json data = Json::array();
      for (const auto& name : service.base_names())
        data.push_back(card(service, llm, name, service.base_names().front(), nullptr));
      for (const auto& adapter : adapters) data.push_back(adapter_card(service, llm, adapter));
      return dumped({{"object", "list"}, {"data", std::move(data)}});
    });
    e->respond(json_response(*body));
  });
}

void get_model(Service& service, const Exchange& exchange, std::string_view id) {
  service.with_model(exchange, [&service, id = std::string(id)](LLM& llm, const Exchange& e) {
    const std::string_view name = adapter_named(id, service.base_names());
    if (name.empty()) return e->respond(json_response(dumped(card(service, llm, id, service.base_names().front(), nullptr))));
    const auto names = service.adapter_names();
    if (!std::binary_search(names->begin(), names->end(), name)) return e->respond(service.unknown_model(id));
    e->respond(json_response(dumped(adapter_card(service, llm, std::string(name)))));
  });
}

void tokenize(Service& service, const Exchange& exchange) {
  service.with_text(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    auto call = read_body(service, e, notes, read_tokenize_call);
    if (!call) return;
    if (call->content) return tokenize_content(service, llm, e, *call);
    auto text = begin_text(service, llm, e, call->model, call->request);
    if (!text) return;
    const std::string_view param = call->request.prompt ? "prompt" : "messages";
    put_earlier_turns(llm, call->request);
    const auto prompt = text_of(llm, call->request);
    if (!prompt.ok()) return e->respond(service.error(prompt.status(), param));
    // The template wrote those of a conversation.
    const bool adds_special = call->add_special_tokens && call->request.prompt;
    const auto tokens = text->vocabulary->tokenize(*prompt, adds_special, static_cast<size_t>(text->most_tokens));
    if (!tokens.ok()) return e->respond(service.error(too_many(tokens.status(), text->most_tokens), param));
    settle(*text, e, std::ssize(*tokens));
    Json answer{{"count", tokens->size()}, {"max_model_len", llm.info().max_model_len}, {"tokens", *tokens}};
    if (call->return_token_strs) {
      Json& strings = answer["token_strs"] = Json::array();
      for (const int32_t id : *tokens) strings.push_back(text->vocabulary->token_text(id));
    }
    e->respond(json_response(dumped(answer)));
  });
}

// As a request would read them: with tools shown, and the template's marks.
void count_message_tokens(Service& service, const Exchange& exchange) {
  service.with_text(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    auto call = read_body(service, e, notes, [&](std::string_view body, BodyNotes& n) {
      return read_message_call(body, usual_sampling(llm), /*counts=*/true, n);
    });
    if (!call) return;
    Request& request = call->chat.request;
    auto text = begin_text(service, llm, e, call->chat.model, request);
    if (!text) return;
    const auto plan = plan_call(service, llm, call->chat, notes);
    if (!plan.ok()) return e->respond(service.error(plan.status(), notes.param));
    const auto prompt = llm.apply_chat_template(request);
    if (!prompt.ok()) return e->respond(service.error(prompt.status(), "messages"));
    const auto tokens = text->vocabulary->tokenize(*prompt, /*add_special=*/false, static_cast<size_t>(text->most_tokens));
    if (!tokens.ok()) return e->respond(service.error(too_many(tokens.status(), text->most_tokens), "messages"));
    settle(*text, e, std::ssize(*tokens));
    e->respond(json_response(dumped({{"input_tokens", tokens->size()}})));
  });
}

void detokenize(Service& service, const Exchange& exchange) {
  service.with_text(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    const auto call = read_body(service, e, notes, read_detokenize_call);
    if (!call) return;
    Request request;
    request.prompt_token_ids = call->tokens;
    auto text = begin_text(service, llm, e, call->model, request);
    if (!text) return;
    if (std::ssize(call->tokens) > text->most_tokens)
      return e->respond(
          service.error(too_many(too_large("'tokens' holds {} ids", call->tokens.size()), text->most_tokens), "tokens"));
    for (const int32_t id : call->tokens) {
      if (id < 0 || id >= text->vocabulary->size())
        return e->respond(service.error(
            invalid_argument("'tokens' holds {}; the model has ids 0 to {}", id, text->vocabulary->size() - 1), "tokens"));
    }
    settle(*text, e, std::ssize(call->tokens));
    const std::string whole = text->vocabulary->detokenize(call->tokens);
    e->respond(json_response(dumped({{"prompt", whole}, {"content", whole}})));  // vLLM's name and llama.cpp's
  });
}

void apply_template(Service& service, const Exchange& exchange) {
  service.with_text(exchange, [&service](LLM& llm, const Exchange& e) {
    BodyNotes notes;
    auto call = read_body(service, e, notes,
                          [&](std::string_view body, BodyNotes& n) { return read_chat_call(body, usual_sampling(llm), n); });
    if (!call) return;
    if (!begin_text(service, llm, e, call->model, call->request)) return;
    if (const auto plan = plan_call(service, llm, *call, notes); !plan.ok())
      return e->respond(service.error(plan.status(), notes.param));
    const auto prompt = llm.apply_chat_template(call->request);
    if (!prompt.ok()) return e->respond(service.error(prompt.status(), "messages"));
    e->respond(json_response(dumped({{"prompt", *prompt}})));
  });
}

}  // namespace choral::serve
