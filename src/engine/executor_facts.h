// What an executor says of the model that it loaded, as far as one worker knows it.
#pragma once

#include <string>

#include "engine/executor.h"
#include "engine/worker.h"

namespace choral::engine {

ExecutorFacts facts_of(const Worker& worker, std::string weights_digest);

}  // namespace choral::engine
