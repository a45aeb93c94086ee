// vLLM's classes of texts, and what its models for pooling give.
#include "serve/pooling/pooled_form.h"
#include "serve/routes/generation.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

// `make_form`: of the answer's head and the call.
template <auto kRead, class MakeForm>
void pool(Service& service, LLM& llm, const Exchange& exchange, std::string_view prefix, MakeForm make_form) {
  BodyNotes notes;
  auto call = read_body(service, exchange, notes, kRead);
  if (!call) return;
  CallHead head;
  head.model = call->model;
  head.request = std::move(call->request);
  if (!prepare(service, exchange, head)) return;
  Request request = std::move(head.request);
  request.classes = call->wants_classes.value_or(!llm.info().class_labels.empty());
  request.embedding = !request.classes;
  request.id = answer_id(prefix, exchange);
  AnswerHead answer = answer_head(service, request.id, call->model);
  LiveRequest live;
  if (!submit(service, llm, exchange, head.model, std::move(request), std::move(call->inputs), live)) return;
  service.start(exchange, std::move(live), make_form(std::move(answer), *call), /*is_streamed=*/false);
}

}  // namespace

void classify(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) {
    pool<read_classify_call>(service, llm, e, "classify-", [&llm](AnswerHead head, const PooledCall& call) {
      return make_classify_form(std::move(head), call, llm.info().class_labels);
    });
  });
}

void pooling(Service& service, const Exchange& exchange) {
  service.with_engine(exchange, [&service](LLM& llm, const Exchange& e) {
    pool<read_pooling_call>(service, llm, e, "pool-", make_pooling_form);
  });
}

}  // namespace choral::serve
