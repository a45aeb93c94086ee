#include <ctime>

#include "serve/anthropic/message_form.h"
#include "serve/fresh_id.h"
#include "serve/http/error_response.h"
#include "serve/native/fill_prompt.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/calls.h"
#include "serve/routes/converse.h"
#include "serve/routes/generation.h"
#include "serve/routes/read_body.h"
#include "serve/routes/response_keeping.h"
#include "serve/routes/routes.h"
#include "serve/usual_sampling.h"

namespace choral::serve {
namespace {

// The names of adapters that llama.cpp's clients call by number. invalid_argument: no adapter ever had it.
Status name_numbered(const Service& service, CallHead& head) {
  for (size_t i = 0; i < head.lora_ids.size(); ++i) {
    if (head.lora_ids[i] < 0) continue;
    auto name = service.adapter_numbers().name_of(head.lora_ids[i]);
    if (!name)
      return invalid_argument("'lora[{}].id' is {}, which no adapter has; GET /lora-adapters lists them", i, head.lora_ids[i]);
    head.request.adapters[i].name = *std::move(name);
  }
  return {};
}

// For the log, whatever comes of the request.
void note_model(const Service& service, const Exchange& exchange, const std::string& model, const Request& request) {
  exchange->note_model(model_of(service, model), request.adapters);
}

}  // namespace

std::string model_of(const Service& service, const std::string& model) {
  return model.empty() ? service.base_names().front() : model;
}

AnswerHead answer_head(const Service& service, std::string id, const std::string& model) {
  return {.id = std::move(id),
          .model = model_of(service, model),
          .created_unix_s = std::time(nullptr),
          .system_fingerprint = service.system_fingerprint()};
}

std::string answer_id(std::string_view prefix, const Exchange& exchange) {
  return fmt::format("{}{}", prefix, exchange->request().ids.request);
}

TokenText token_text(const LLM& llm) {
  return [&llm](int32_t id) { return llm.token_bytes(id); };
}

bool submit(Service& service, LLM& llm, const Exchange& exchange, const std::string& model, Request request,
            std::vector<Prompt> prompts, LiveRequest& live) {
  auto refusal = service.submit(llm, exchange, model, std::move(request), std::move(prompts), live);
  if (refusal) exchange->respond(*std::move(refusal));
  return !refusal;
}

void go_on(Service& service, LLM& llm, const Exchange& exchange, const Request& request, Service::Work rest) {
  if (request.structured_output.kind == StructuredOutput::Kind::kNone) return rest(llm, exchange);
  service.with_grammar(exchange, std::move(rest));
}

bool prepare(Service& service, const Exchange& exchange, CallHead& head) {
  if (const Status named = name_numbered(service, head); !named.ok()) {
    exchange->respond(service.error(named, "lora"));
    return false;
  }
  if (head.goes_on && head.resume_fingerprint != service.system_fingerprint()) {
    exchange->respond(service.error(
        invalid_argument(
            "'resume': the answer began at a server whose system_fingerprint is {}, and this one's is {}: it has another model, "
            "quantisation or arithmetic, and would go on with another text; ask one that has the same, or begin again",
            requests::shown(head.resume_fingerprint), service.system_fingerprint()),
        "resume"));
    return false;
  }
  service.put_model(head.model, head.has_lora, head.request);
  note_model(service, exchange, head.model, head.request);
  return true;
}

AnswerHead answer_head(const Service& service, const CallHead& call, const LiveRequest& live) {
  AnswerHead head = answer_head(service, call.request.id, call.model);
  if (call.include_resume) head.prompt_digest = resume_digest(live.streams.front().stream->prompt_token_ids());
  return head;
}

PromptTokens prompts_of(const LiveRequest& live) {
  PromptTokens prompts;
  for (const auto& one : live.streams) prompts.push_back(one.stream->prompt_token_ids());
  return prompts;
}

std::shared_ptr<const Vocabulary> vocabulary_of(Service& service, LLM& llm, const Exchange& exchange, const CallHead& head) {
  auto vocabulary = llm.vocabulary(head.request.adapters);
  if (vocabulary.ok()) return *std::move(vocabulary);
  const bool is_unknown = vocabulary.status().code() == Code::kNotFound && !head.request.adapters.empty();
  const std::string& name = head.model.empty() && is_unknown ? head.request.adapters.front().name : head.model;
  exchange->respond(is_unknown ? service.unknown_model(name) : service.error(vocabulary.status()));
  return nullptr;
}

namespace {

// Puts what stands before and behind each gap into its prompt. False: the exchange is answered with why not.
bool put_suffix(Service& service, LLM& llm, const Exchange& exchange, CompletionCall& call) {
  if (call.suffix.empty()) return true;
  const auto vocabulary = vocabulary_of(service, llm, exchange, call);
  if (vocabulary == nullptr) return false;
  const FillTokens& tokens = llm.info().fill_tokens;
  for (auto& prompt : call.prompts) {
    auto filled = fill_prompt({.before = std::move(prompt), .behind = call.suffix, .begun = "", .files = {}}, tokens, *vocabulary,
                              most_tokens_read(llm));
    if (!filled.ok()) return exchange->respond(service.error(filled.status(), "suffix")), false;
    prompt = *std::move(filled);
  }
  add_fill_stops(tokens, call.request.sampling);
  return true;
}

void submit_completion(Service& service, LLM& llm, const Exchange& exchange, const CompletionCall& call) {
  LiveRequest live;
  if (!submit(service, llm, exchange, call.model, call.request, call.prompts, live)) return;
  auto form = make_completion_form(answer_head(service, call, live), call,
                                   shows_prompts(call) ? prompts_of(live) : PromptTokens(), token_text(llm));
  service.start(exchange, std::move(live), std::move(form), call.stream);
}

void complete(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto read = read_body(service, exchange, notes,
                        [&](std::string_view body, BodyNotes& n) { return read_completion_call(body, usual_sampling(llm), n); });
  if (!read) return;
  if (!prepare(service, exchange, *read)) return;
  if (!put_suffix(service, llm, exchange, *read)) return;
  read->request.id = answer_id("cmpl-", exchange);
  const auto call = std::make_shared<const CompletionCall>(*std::move(read));
  go_on(service, llm, exchange, call->request,
        [&service, call](LLM& engine, const Exchange& e) { submit_completion(service, engine, e, *call); });
}

void chat(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes{.strict = service.has_strict_fields()};
  auto call = read_chat_call(exchange->request().body, usual_sampling(llm), notes);
  converse(
      service, llm, exchange, answer_id("chatcmpl-", exchange), std::move(call), notes,
      [&service](const ChatCall& c, AnswerHead head, AnswerPlan plan, const LLM& engine, const Exchange& e, LiveRequest live) {
        auto form = make_chat_form(std::move(head), c, shows_prompts(c) ? prompts_of(live) : PromptTokens(), std::move(plan),
                                   token_text(engine));
        service.start(e, std::move(live), std::move(form), c.stream);
      });
}

void respond(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes{.strict = service.has_strict_fields()};
  auto call = read_response_call(exchange->request().body, usual_sampling(llm), notes, response_memory(service, exchange));
  std::string id = call.ok() && call->store ? fresh_id("resp_") : answer_id("resp_", exchange);
  converse(service, llm, exchange, std::move(id), std::move(call), notes,
           [&service](const ResponseCall& c, AnswerHead head, const AnswerPlan& plan, const LLM& engine, const Exchange& e,
                      LiveRequest live) {
             auto form = make_response_form(std::move(head), c, plan, token_text(engine), response_keeper(service, e, c));
             if (c.background) return start_in_background(service, e, c, std::move(live), std::move(form));
             service.start(e, std::move(live), std::move(form), c.chat.stream);
           });
}

void say_message(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes{.strict = service.has_strict_fields()};
  auto call = read_message_call(exchange->request().body, usual_sampling(llm), /*counts=*/false, notes);
  converse(
      service, llm, exchange, answer_id("msg_", exchange), std::move(call), notes,
      [&service](const MessageCall& c, AnswerHead head, AnswerPlan plan, const LLM& engine, const Exchange& e, LiveRequest live) {
        auto form = make_message_form(std::move(head), c, std::move(plan), token_text(engine));
        service.start(e, std::move(live), std::move(form), c.chat.stream);
      });
}

void embed(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  const auto call = read_body(service, exchange, notes, read_embedding_call);
  if (!call) return;
  CallHead head;
  head.model = call->model;
  head.request = call->request;
  service.put_model(call->model, /*has_lora=*/false, head.request);
  note_model(service, exchange, head.model, head.request);
  head.request.embedding = true;
  head.request.id = answer_id("embd-", exchange);
  LiveRequest live;
  if (!submit(service, llm, exchange, head.model, head.request, call->inputs, live)) return;
  auto form = make_embedding_form(answer_head(service, head.request.id, call->model), call->base64);
  service.start(exchange, std::move(live), std::move(form), /*is_streamed=*/false);
}

}  // namespace

void embeddings(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { embed(service, llm, e); });
}

void responses(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { respond(service, llm, e); });
}

void messages(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { say_message(service, llm, e); });
}

void completions(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { complete(service, llm, e); });
}

void chat_completions(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { chat(service, llm, e); });
}

}  // namespace choral::serve
