// `choral adapter catalogue`: writes what a folder of adapters holds into its catalogue.json, for servers that follow it there or
// fetch from a web server that gives it out.
#pragma once

#include <string>

#include "engine_flags.h"

namespace choral::apps {

struct AdapterCatalogueFlags {
  std::string folder;
  EngineFlags engine;  // of the engine's options: the model and max_lora_rank
  bool quiet = false;
};

// Nothing is written where one of them cannot be served.
Status write_adapter_catalogue(const AdapterCatalogueFlags& flags);

}  // namespace choral::apps
