// The rows of a step by adapter, for the scheduler, the worker and the plan: runs of consecutive rows, never a list of rows. A
// value.
#pragma once

#include <cstdint>

#include "lora/adapter_ids.h"

namespace choral::lora {

// Consecutive rows of one adapter; neighbours differ.
struct LoRASegment {
  int64_t start = 0;
  int64_t length = 0;
  AdapterKey key;
  bool operator==(const LoRASegment&) const = default;
};

// What else a step's rows are: all of them, the base's included, and whether some belong to a prompt.
struct StepRows {
  int64_t count = 0;
  bool has_prefill = false;
};

}  // namespace choral::lora
