// An adapter registry for tests. Tests only.
#pragma once

#include "base/check.h"
#include "engine/adapters/adapter_registry.h"

namespace choral::engine {

inline std::shared_ptr<AdapterRegistry> make_registry(std::span<const lora::LoRATarget> targets,
                                                      AdapterRegistry::Config config = {}) {
  auto made = AdapterRegistry::make(cpu_level(), targets, std::move(config));
  CHORAL_CHECK(made.ok(), made.status().message());
  return std::move(*made);
}

}  // namespace choral::engine
