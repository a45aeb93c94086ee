// The shrinks of a layer whose outputs ranks divide, divided too (LoRAConfig::fully_sharded_loras): each rank makes some columns
// of the middles, for which it reads their rows of A alone, and is given the others. A sum is one rank's, in the order it always
// has.
#pragma once

#include <span>

#include "kernels/lora/lora_batch.h"
#include "platform/context.h"

namespace choral::lora {

// The same on every rank, which then has all middles, each without gaps between its rows. One gather.
void run_divided_shrinks(const platform::Context& ctx, std::span<const kernels::LoRAShrink> shrinks);

}  // namespace choral::lora
