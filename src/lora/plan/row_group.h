// Rows of a layer's input that have the same voice. The adapters' plan is made of these. A value.
#pragma once

#include <cstdint>

#include "lora/store/packed_adapter.h"

namespace choral::lora {

// Consecutive rows with the same voice.
struct RowGroup {
  int64_t row_begin = 0;
  int64_t row_count = 0;
  const PackedVoice* voice = nullptr;
};

}  // namespace choral::lora
