// Lines of requests in, lines of answers out, in the same order; a bad line is an error of that line.
// All lines go into the engine's batch; the file is read on while answers come.
#pragma once

#include <string>

#include "engine_flags.h"
#include "sampling_flags.h"

namespace choral::apps {

// The flags' sampling values stand where a line gives none. The Status is that of the first line that failed.
Status generate_jsonl(const EngineFlags& engine, const SamplingFlags& sampling, const std::string& input,
                      const std::string& output);

}  // namespace choral::apps
