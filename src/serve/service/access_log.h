// The line that the access log has of a request: when, who asked for what, by which key, of which model, with how many tokens,
// what the request is called, and what came of it, with an error's reason; never what was asked or answered. Pure.
#pragma once

#include <string>

#include "serve/server.h"
#include "serve/service/observed_exchange.h"

namespace choral::serve {

// Without its line break; `form` is not kOff.
std::string access_line(AccessLog form, const AnsweredRequest& answered);

}  // namespace choral::serve
