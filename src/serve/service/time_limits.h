// The server's limits of time over a request's own: a client may ask for less, never for more. A value.
#pragma once

#include "choral/types.h"

namespace choral::serve {

struct TimeLimits {
  double timeout_s = 0, queue_timeout_s = 0;  // EngineOptions'; 0 = none

  void hold(Request& request) const {
    hold(request.timeout_s, timeout_s);
    hold(request.queue_timeout_s, queue_timeout_s);
  }

 private:
  static void hold(double& own, double limit) {
    if (limit > 0 && own > limit) own = limit;
  }
};

}  // namespace choral::serve
