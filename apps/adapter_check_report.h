// `choral adapter check`: what an adapter's files hold, whether they can be served, with --model also whether they fit it.
#pragma once

#include <string>
#include <vector>

#include "engine_flags.h"

namespace choral::apps {

struct AdapterCheckFlags {
  EngineFlags engine;  // of the engine's options: the model, max_lora_rank, lora_extra_vocab_size and lora_dtype
  std::vector<std::string> paths;
  bool json = false;
};

// The Status is that of the first adapter that would be refused.
Status check_adapters(const AdapterCheckFlags& flags);

}  // namespace choral::apps
