// A process that computes its share of a model for the first rank, and serves nobody itself.
#pragma once

#include "choral/llm.h"

namespace choral::engine {

// tensor_parallel_size becomes the link's number of ranks; an error is that another was asked for.
Status take_ranks_of_link(EngineOptions& options);

// Loads as LLM::load() would, with EngineOptions::rank_link of a rank that is not the first, and computes until the first one
// ends. An error is why it cannot go on; the first rank has been told, or cannot be.
Status follow_first_rank(EngineOptions options);

}  // namespace choral::engine
