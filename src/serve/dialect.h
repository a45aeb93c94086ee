// Whose words an answer is in where two APIs say the same thing differently: an error, and what the request is called.
// Pure; any thread.
#pragma once

#include "serve/http/message.h"

namespace choral::serve {

enum class Dialect { kOpenAI, kAnthropic, kOllama };

// Puts the answer to the request of that name, which is in OpenAI's words, into those of `dialect`.
void translate(Dialect dialect, const RequestIds& ids, HttpResponse& response);
// The same of the head of a stream.
void translate(Dialect dialect, const RequestIds& ids, Headers& headers);

}  // namespace choral::serve
