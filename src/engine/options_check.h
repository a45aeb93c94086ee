// The ranges of an engine's numeric options, checked before anything is built from them: what allocates by one of these numbers
// need not ask again. Names that stand for something (dtype, policy, device) are checked by whoever knows them.
#pragma once

#include "base/status.h"
#include "choral/llm.h"

namespace choral::engine {

// The first option out of range, by its flag, with what it may be.
Status check_options(const EngineOptions& options);

}  // namespace choral::engine
