#include "serve/dialect.h"

#include "serve/anthropic/error_form.h"

namespace choral::serve {

void translate(Dialect dialect, const RequestIds& ids, Headers& headers) {
  if (dialect == Dialect::kAnthropic) headers.set("request-id", ids.request);
}

void translate(Dialect dialect, const RequestIds& ids, HttpResponse& response) {
  translate(dialect, ids, response.headers);
  if (dialect == Dialect::kAnthropic && response.error) response.body = anthropic_error_body(*response.error, ids.request);
}

}  // namespace choral::serve
