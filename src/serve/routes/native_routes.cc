// llama.cpp's own routes: its bodies and answers over the same engine, keys and limits.
#include <algorithm>

#include "serve/http/error_response.h"
#include "serve/native/native_call.h"
#include "serve/native/native_form.h"
#include "serve/routes/call_plan.h"
#include "serve/routes/generation.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"
#include "serve/usual_sampling.h"

namespace choral::serve {
namespace {

Result<std::vector<Prompt>> prompts_as_told(NativeCall& call, const LLM& llm, const Vocabulary& vocabulary) {
  std::vector<Prompt> prompts;
  const size_t most_tokens = most_tokens_read(llm);
  if (call.gap) {
    const FillTokens& tokens = llm.info().fill_tokens;
    CHORAL_TRY(auto ids, fill_prompt(*call.gap, tokens, vocabulary, most_tokens));
    add_fill_stops(tokens, call.request.sampling);
    prompts.emplace_back(std::move(ids));
    return prompts;
  }
  for (auto& parts : call.prompts) {
    CHORAL_TRY(auto prompt, joined_prompt(std::move(parts), vocabulary, call.request.add_special_tokens, most_tokens));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::vector<int32_t> adapter_ids(const Service& service, const NativeCall& call) {
  std::vector<int32_t> ids;
  for (const auto& use : call.request.adapters) ids.push_back(service.adapter_numbers().number_of(use.name).value_or(-1));
  return ids;
}

// A call whose prompts are what the engine takes.
struct ReadyCall {
  NativeCall call;
  std::vector<Prompt> prompts;
  std::shared_ptr<const Vocabulary> vocabulary;
};

void submit_native(Service& service, LLM& llm, const Exchange& exchange, const ReadyCall& ready) {
  const NativeCall& call = ready.call;
  LiveRequest live;
  if (!submit(service, llm, exchange, call.model, call.request, ready.prompts, live)) return;
  auto form = make_native_form(
      call, {.model = model_of(service, call.model),
             .max_model_len = llm.info().max_model_len,
             .prompts = prompts_of(live),
             .adapter_ids = adapter_ids(service, call),
             .token_text = [vocabulary = ready.vocabulary](int32_t id) { return vocabulary->token_bytes(id); },
             .prompt_text = [vocabulary = ready.vocabulary](const auto& ids) { return vocabulary->detokenize(ids); }});
  service.start(exchange, std::move(live), std::move(form), call.stream);
}

template <auto kRead>
void complete_natively(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto read = read_body(service, exchange, notes,
                        [&](std::string_view body, BodyNotes& n) { return kRead(body, usual_sampling(llm), n); });
  if (!read) return;
  if (!prepare(service, exchange, *read)) return;
  auto vocabulary = vocabulary_of(service, llm, exchange, *read);
  if (vocabulary == nullptr) return;
  auto prompts = prompts_as_told(*read, llm, *vocabulary);
  if (!prompts.ok()) return exchange->respond(service.error(prompts.status(), read->gap ? "input_prefix" : "prompt"));
  read->request.id = answer_id("cmpl-", exchange);
  const auto ready = std::make_shared<const ReadyCall>(
      ReadyCall{.call = *std::move(read), .prompts = *std::move(prompts), .vocabulary = std::move(vocabulary)});
  go_on(service, llm, exchange, ready->call.request,
        [&service, ready](LLM& engine, const Exchange& e) { submit_native(service, engine, e, *ready); });
}

void embed_natively(Service& service, LLM& llm, const Exchange& exchange) {
  BodyNotes notes;
  auto call = read_body(service, exchange, notes, read_native_embedding_call);
  if (!call) return;
  CallHead head;
  head.model = call->model;
  head.request = call->request;
  if (!prepare(service, exchange, head)) return;
  const auto vocabulary = vocabulary_of(service, llm, exchange, head);
  if (vocabulary == nullptr) return;
  std::vector<Prompt> prompts;
  for (auto& parts : call->inputs) {
    auto prompt = joined_prompt(std::move(parts), *vocabulary, head.request.add_special_tokens, most_tokens_read(llm));
    if (!prompt.ok()) return exchange->respond(service.error(prompt.status(), "content"));
    prompts.push_back(*std::move(prompt));
  }
  head.request.embedding = true;
  head.request.id = answer_id("embd-", exchange);
  LiveRequest live;
  if (!submit(service, llm, exchange, head.model, head.request, std::move(prompts), live)) return;
  service.start(exchange, std::move(live), make_native_embedding_form(call->norm), /*is_streamed=*/false);
}

}  // namespace

void native_completion(Service& service, const Exchange& exchange) {
  service.with_engine(exchange,
                      [&service](LLM& llm, const Exchange& e) { complete_natively<read_native_call>(service, llm, e); });
}

void infill(Service& service, const Exchange& exchange) {
  service.with_engine(exchange,
                      [&service](LLM& llm, const Exchange& e) { complete_natively<read_infill_call>(service, llm, e); });
}

void native_embeddings(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) { embed_natively(service, llm, e); });
}

}  // namespace choral::serve
