// Nothing that a handler or a callback throws may end an I/O thread, which serves everybody else. Thread-safe.
#pragma once

#include <exception>
#include <string_view>

#include "base/log.h"

namespace choral::serve {

// Runs `work`; false when it threw, which is logged. `what` names it: "a handler".
template <class Work>
bool contained(std::string_view what, Work&& work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    CHORAL_LOG(kError, "{} of the HTTP server threw: {}", what, error.what());
  } catch (...) {
    CHORAL_LOG(kError, "{} of the HTTP server threw something that is no std::exception", what);
  }
  return false;
}

}  // namespace choral::serve
