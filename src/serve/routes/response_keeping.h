// Responses of /v1/responses that are kept: those that a new one goes on from, where its end goes, and those that are computed
// while nobody waits. Any thread.
#pragma once

#include <memory>
#include <string>

#include "serve/openai/response_form.h"
#include "serve/service/service.h"

namespace choral::serve {

// What the request may go on from.
ResponseMemory response_memory(Service& service, const Exchange& exchange);
// Where the end of the response goes; empty: it is not stored.
KeepResponse response_keeper(Service& service, const Exchange& exchange, const ResponseCall& call);
// Answers the exchange with the response as it is queued, and computes the rest.
void start_in_background(Service& service, const Exchange& exchange, const ResponseCall& call, LiveRequest live,
                         std::unique_ptr<ResponseAnswerForm> form);

}  // namespace choral::serve
