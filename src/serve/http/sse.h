// Server-sent events as text (https://html.spec.whatwg.org/multipage/server-sent-events.html): each function gives one whole
// event for HttpExchange::send. A line break inside `data` makes several data lines, so no text can end its event early. Pure.
#pragma once

#include <string>
#include <string_view>

#include "serve/http/message.h"

namespace choral::serve {

std::string sse_data(std::string_view data);                           // "data: …\n\n"
std::string sse_event(std::string_view event, std::string_view data);  // "event: …\ndata: …\n\n"
// A comment, which clients skip: keeps proxies from closing a quiet stream and finds out whether the client is there.
std::string sse_keep_alive();  // ": keep-alive\n\n"

// Content-Type: text/event-stream and what keeps proxies from buffering.
Headers sse_headers();

}  // namespace choral::serve
