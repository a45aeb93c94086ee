// `choral adapter diff`: the same prompts answered by two voices in one batch, and where their answers part.
#pragma once

#include <string>
#include <vector>

#include "engine_flags.h"
#include "sampling_flags.h"

namespace choral::apps {

struct AdapterDiffFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string first, second;
  std::vector<std::string> prompts;
  std::string system;
  bool chat = false;
  bool json = false;
  std::string html;
};

Status diff_adapters(const AdapterDiffFlags& flags);

}  // namespace choral::apps
