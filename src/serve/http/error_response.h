// An error as an answer of HTTP: the body of error_body.h, and Retry-After where trying again can help. Pure.
#pragma once

#include "serve/error_body.h"
#include "serve/http/message.h"

namespace choral::serve {

HttpResponse error_response(const ApiError& error);
HttpResponse error_response(const Status& status, std::string_view param = {});
HttpResponse json_response(std::string body);

}  // namespace choral::serve
