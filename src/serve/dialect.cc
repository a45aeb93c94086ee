#include "serve/dialect.h"

#include "serve/anthropic/error_form.h"
#include "serve/ollama/ollama_form.h"

namespace choral::serve {

void translate(Dialect dialect, const RequestIds& ids, Headers& headers) {
  if (dialect == Dialect::kAnthropic) headers.set("request-id", ids.request);
}

void translate(Dialect dialect, const RequestIds& ids, HttpResponse& response) {
  translate(dialect, ids, response.headers);
  if (!response.error) return;
  if (dialect == Dialect::kOllama) response.body = ollama_error_body(*response.error);
  if (dialect == Dialect::kAnthropic) response.body = anthropic_error_body(*response.error, ids.request);
}

}  // namespace choral::serve
