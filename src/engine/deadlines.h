// The time limits of live requests: which have passed, and when to look again. A limit is noted when its request arrives. A
// request that ends before its limit costs one more look at most. Engine thread.
#pragma once

#include <limits>

#include "engine/engine_request.h"

namespace choral::engine {

class Deadlines {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // The limits of a request that arrives.
  void add(const EngineRequest& request) { note(next_of(request)); }
  // No limit passes until then.
  double next_s() const { return next_s_; }

  // At a time at or after next_s(): begin(), then review() for each live request, which says which limit of it has passed.
  void begin() { next_s_ = kNever; }
  Status review(const EngineRequest& request, double now);

 private:
  static double next_of(const EngineRequest& request);
  void note(double time_s) { next_s_ = time_s < next_s_ ? time_s : next_s_; }

  double next_s_ = kNever;
};

}  // namespace choral::engine
