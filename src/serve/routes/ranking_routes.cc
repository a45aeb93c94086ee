// Jina's, Cohere's and vLLM's reranking and vLLM's scores.
#include "serve/ranking/rank_form.h"
#include "serve/routes/generation.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

// `make_form`: of the answer's head and the call.
template <auto kRead, class MakeForm>
void score_pairs(Service& service, LLM& llm, const Exchange& exchange, std::string_view prefix, MakeForm make_form) {
  BodyNotes notes;
  auto call = read_body(service, exchange, notes, kRead);
  if (!call) return;
  CallHead head;
  head.model = call->model;
  head.request = call->request;
  if (!prepare(service, exchange, head)) return;
  const auto vocabulary = vocabulary_of(service, llm, exchange, head);
  if (vocabulary == nullptr) return;
  auto asked = pair_prompts(*call, service.score_by(), llm, *vocabulary);
  if (!asked.ok()) return exchange->respond(service.error(asked.status()));
  Request request = std::move(asked->request);
  request.adapters = head.request.adapters;
  request.id = answer_id(prefix, exchange);
  AnswerHead answer = answer_head(service, request.id, call->model);
  LiveRequest live;
  if (!submit(service, llm, exchange, head.model, std::move(request), std::move(asked->prompts), live)) return;
  service.start(exchange, std::move(live), make_form(std::move(answer), *std::move(call), service.score_by()),
                /*is_streamed=*/false);
}

}  // namespace

void rerank(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) {
    score_pairs<read_rerank_call>(service, llm, e, "rerank-", make_rerank_form);
  });
}

void score(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) {
    score_pairs<read_score_call>(service, llm, e, "score-", make_score_form);
  });
}

}  // namespace choral::serve
