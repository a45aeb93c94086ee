// An error as a whole answer: the JSON of error_body.h, with Retry-After where trying again helps. Pure.
#pragma once

#include "serve/error_body.h"
#include "serve/http/message.h"

namespace choral::serve {

inline HttpResponse fault_response(const ApiError& fault) {
  HttpResponse response{fault.status, {{"Content-Type", "application/json"}}, error_body(fault)};
  if (fault.status == 503) response.headers.add("Retry-After", "1");
  return response;
}

}  // namespace choral::serve
