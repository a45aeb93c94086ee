// Checks the ranges of an engine's numeric options before anything is built from them, so code that allocates by one of these
// numbers need not check again. The users of names (dtype, policy, device) check those.
#pragma once

#include "base/status.h"
#include "choral/llm.h"

namespace choral::engine {

// The first option out of range, by its flag, with what it may be.
Status check_options(const EngineOptions& options);

}  // namespace choral::engine
