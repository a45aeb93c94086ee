// Lines of requests in, lines of answers out, in the same order; a bad line is an error of that line.
// All lines go into the engine's batch; the file is read on while answers come.
#pragma once

#include <string>

#include "engine_flags.h"
#include "sampling_flags.h"

namespace choral::apps {

struct JsonlFiles {
  std::string input, output;   // "-": standard input and output
  bool resume = false;         // the answers that a stopped run left stay, and the lines after theirs are answered
  bool strict_fields = false;  // a field that is not known is an error of its line
};

// The flags' sampling values stand where a line gives none, and an adapter that --lora brings alone where a line names nobody.
// The Status is that of the first line that failed. What is complete when a signal comes is kept beside `output`.
Status generate_jsonl(const EngineFlags& engine, const SamplingFlags& sampling, const JsonlFiles& files);

}  // namespace choral::apps
