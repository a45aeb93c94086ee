// The kinds of adapters that PEFT knows, each as a recipe for one of the tiny models. Every test of "all kinds" goes through this
// table.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "golden/adapter_kind.h"

namespace choral::golden {

struct Kind {
  const char* name;
  const char* model;
  void (*build)(AdapterKind& kind, const WeightSet& base);
};

std::span<const Kind> all_kinds();
// Those of mixtures of experts, which are among them.
std::span<const Kind> mixture_kinds();

inline std::string layer(int i) { return "model.layers." + std::to_string(i); }

// PEFT's two files of it, in a folder that is made.
Status write_adapter(const std::filesystem::path& folder, const AdapterKind& kind);

}  // namespace choral::golden
