#include "engine/deadlines.h"

#include <algorithm>

namespace choral::engine {
namespace {

double after(double begin_s, double limit_s) { return limit_s > 0 ? begin_s + limit_s : Deadlines::kNever; }

double whole_end(const EngineRequest& request) { return after(request.submitted_s, request.timeout_s); }
double queue_end(const EngineRequest& request) { return after(request.submitted_s, request.queue_timeout_s); }

}  // namespace

// Its own first step is enough to forget the queue's limit; another completion's is seen by review().
double Deadlines::next_of(const EngineRequest& request) {
  const double whole = whole_end(request);
  return request.scheduled_s > 0 ? whole : std::min(whole, queue_end(request));
}

Status Deadlines::review(const EngineRequest& request, double now) {
  const double waited_s = now - request.submitted_s;
  const bool begun = request.scheduled_s > 0 || request.response->begun();
  if (now >= whole_end(request)) {
    return deadline_exceeded("the answer was not complete after {:.3f} s, its timeout_s is {} s: {}", waited_s, request.timeout_s,
                             begun ? fmt::format("{} of at most {} tokens were made", request.output_count(), request.max_tokens)
                                   : "it never came to a step");
  }
  if (!begun && now >= queue_end(request)) {
    return deadline_exceeded("the request waited {:.3f} s without coming to a step, its queue_timeout_s is {} s; try again later",
                             waited_s, request.queue_timeout_s);
  }
  note(begun ? whole_end(request) : next_of(request));
  return {};
}

}  // namespace choral::engine
