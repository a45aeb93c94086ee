// What a request is called: by its client, by whoever traces it, and by us. In every line that a log has of it and in the headers
// of its answer, so that one can be found by the other. X-Request-Id is taken as it is when it is short and printable;
// traceparent is that of W3C's Trace Context, and one that is not well formed counts as none. Pure but for the random digits.
#pragma once

#include <string>

#include "serve/http/message.h"

namespace choral::serve {

// Before the head was read there is none: `request` is empty.
RequestIds make_request_ids(const Headers& headers);

// X-Request-Id, and for a client that traces traceparent, with our span.
void add_ids(const RequestIds& ids, Headers& headers);

// ` request=…`, for a line of text; with the trace where there is one.
std::string ids_text(const RequestIds& ids);

}  // namespace choral::serve
