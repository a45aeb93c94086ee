#include <ctime>

#include "serve/http/error_response.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/calls.h"
#include "serve/routes/routes.h"
#include "serve/usual_sampling.h"

namespace choral::serve {
namespace {

// The names of adapters that llama.cpp's clients call by number. invalid_argument: no adapter has it.
Status name_numbered(const LLM& llm, CallHead& head) {
  for (size_t i = 0; i < head.lora_ids.size(); ++i) {
    if (head.lora_ids[i] < 0) continue;
    const auto adapters = llm.adapters();
    const auto found = std::find_if(adapters.begin(), adapters.end(), [&](const auto& a) { return a.id == head.lora_ids[i]; });
    if (found == adapters.end())
      return invalid_argument("'lora[{}].id' is {}, which no adapter has; GET /lora-adapters lists them", i, head.lora_ids[i]);
    head.request.adapters[i].name = found->name;
  }
  return {};
}

AnswerHead answer_head(const Service& service, std::string id, const std::string& model) {
  return {
      .id = std::move(id), .model = model.empty() ? service.base_names().front() : model, .created_unix_s = std::time(nullptr)};
}

// "chatcmpl-…": by the request's own id, which its headers tell.
std::string answer_id(std::string_view prefix, const Exchange& exchange) {
  return fmt::format("{}-{}", prefix, exchange->request().ids.request);
}

TokenText token_text(const LLM& llm) {
  return [&llm](int32_t id) { return llm.token_bytes(id); };
}

void put_prompt(const std::variant<std::string, std::vector<int32_t>>& prompt, Request& request) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    request.prompt_token_ids = *ids;
  } else {
    request.prompt = std::get<std::string>(prompt);
  }
}

// Adds the engine's stream for the request to `streams`. False: the exchange is answered, with why there is none.
bool submit(Service& service, LLM& llm, const Exchange& exchange, const std::string& model, Request request,
            LiveAnswer::Streams& streams) {
  LiveStream& live = streams.emplace_back();
  if (auto refusal = service.submit(llm, exchange, model, std::move(request), live)) {
    exchange->respond(*std::move(refusal));
    return false;
  }
  return true;
}

// What both bodies need before their prompts are submitted. False: the request is answered.
bool prepare(Service& service, const LLM& llm, const Exchange& exchange, CallHead& head) {
  if (const Status named = name_numbered(llm, head); !named.ok()) {
    exchange->respond(service.error(named, "lora"));
    return false;
  }
  service.put_model(head.model, head.request);
  return true;
}

void complete(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto call = read_completion_call(exchange->request().body, usual_sampling(llm), notes);
  if (!call.ok()) return exchange->respond(service.error(call.status(), notes.param));
  service.note_unknown(notes.unknown);
  if (!prepare(service, llm, exchange, *call)) return;
  std::vector<int32_t> first_tokens;
  const std::string id = answer_id("cmpl", exchange);
  LiveAnswer::Streams streams;
  for (const auto& prompt : call->prompts) {
    Request request = call->request;
    request.id = call->prompts.size() == 1 ? id : fmt::format("{}-{}", id, streams.size());
    put_prompt(prompt, request);
    if (call->stream && call->echo && request.sampling.logprobs) {
      // The pieces of a stream do not say what the prompt's first token was.
      if (request.prompt) {
        auto ids = llm.tokenize(*request.prompt, request.add_special_tokens);
        if (!ids.ok()) return exchange->respond(service.error(ids.status(), "prompt"));
        request.prompt.reset();
        request.prompt_token_ids = *std::move(ids);
      }
      first_tokens.push_back(request.prompt_token_ids.empty() ? 0 : request.prompt_token_ids.front());
    }
    if (!submit(service, llm, exchange, call->model, std::move(request), streams)) return;
  }
  auto form = make_completion_form(answer_head(service, id, call->model), *call, std::move(first_tokens), token_text(llm));
  service.start(exchange, std::move(streams), std::move(form), call->stream);
}

// `make_form` is called when the engine took the request: before that a number in it may be any.
template <class MakeForm>
void submit_one(Service& service, LLM& llm, const Exchange& exchange, const CallHead& head, MakeForm make_form) {
  LiveAnswer::Streams streams;
  if (!submit(service, llm, exchange, head.model, head.request, streams)) return;
  service.start(exchange, std::move(streams), make_form(), head.stream);
}

// What the body's tools mean for the prompt, the sampling and the answer.
Result<ToolPlan> plan_call(const Service& service, LLM& llm, ChatCall& call, BodyNotes& notes) {
  Request& r = call.request;
  if (r.tools_json.empty() && call.tool_choice_json.empty()) return ToolPlan();
  CHORAL_TRY(ToolPlan plan, plan_tools({.tools = r.tools_json,
                                        .tool_choice = call.tool_choice_json,
                                        .parallel_tool_calls = call.parallel_tool_calls ? "true" : "false"},
                                       service.tool_setting(llm), notes.param));
  r.tools_json = plan.tools_json;
  if (plan.constraint.kind != StructuredOutput::Kind::kNone) {
    if (r.structured_output.kind != StructuredOutput::Kind::kNone) {
      notes.param = "tool_choice";
      return invalid_argument("'tool_choice' and 'response_format' both say what the answer looks like; give one of them");
    }
    r.structured_output = plan.constraint;
  }
  if (plan.keep_special_tokens) r.sampling.skip_special_tokens = false;
  return plan;
}

void chat(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto call = read_chat_call(exchange->request().body, usual_sampling(llm), notes);
  if (!call.ok()) return exchange->respond(service.error(call.status(), notes.param));
  service.note_unknown(notes.unknown);
  if (!prepare(service, llm, exchange, *call)) return;
  call->request.id = answer_id("chatcmpl", exchange);
  auto tools = plan_call(service, llm, *call, notes);
  if (!tools.ok()) return exchange->respond(service.error(tools.status(), notes.param));
  submit_one(service, llm, exchange, *call, [&] {
    return make_chat_form(answer_head(service, call->request.id, call->model), *call, *std::move(tools), token_text(llm));
  });
}

void respond(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto call = read_response_call(exchange->request().body, usual_sampling(llm), notes);
  if (!call.ok()) return exchange->respond(service.error(call.status(), notes.param));
  service.note_unknown(notes.unknown);
  if (!prepare(service, llm, exchange, call->chat)) return;
  call->chat.request.id = answer_id("resp", exchange);
  auto tools = plan_call(service, llm, call->chat, notes);
  if (!tools.ok()) return exchange->respond(service.error(tools.status(), notes.param));
  submit_one(service, llm, exchange, call->chat, [&] {
    return make_response_form(answer_head(service, call->chat.request.id, call->chat.model), *call, *std::move(tools));
  });
}

void embed(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  const auto call = read_embedding_call(exchange->request().body, notes);
  if (!call.ok()) return exchange->respond(service.error(call.status(), notes.param));
  CallHead head;
  head.model = call->model;
  head.request = call->request;
  service.put_model(call->model, head.request);
  head.request.embedding = true;
  head.request.id = answer_id("embd", exchange);
  LiveAnswer::Streams streams;
  for (const auto& input : call->inputs) {
    Request request = head.request;
    put_prompt(input, request);
    if (call->inputs.size() > 1) request.id += fmt::format("-{}", streams.size());
    if (!submit(service, llm, exchange, head.model, std::move(request), streams)) return;
  }
  auto form = make_embedding_form(answer_head(service, head.request.id, call->model), call->base64);
  service.start(exchange, std::move(streams), std::move(form), /*is_streamed=*/false);
}

}  // namespace

void embeddings(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { embed(service, llm, e); });
}

void responses(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { respond(service, llm, e); });
}

void completions(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { complete(service, llm, e); });
}

void chat_completions(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { chat(service, llm, e); });
}

}  // namespace choral::serve
