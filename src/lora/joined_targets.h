// The targets of a model that is divided over ranks, as adapters see the whole: what a rank holds of a layer's weights is read
// where it is.
#pragma once

#include <span>
#include <vector>

#include "lora/target.h"

namespace choral::lora {

// `ranks`: the targets of each that this process has, alike but for what is held; they outlive what is returned, whose weights
// are there. What none of them holds is LoRATarget::elsewhere.
std::vector<LoRATarget> join_targets(std::span<const std::span<const LoRATarget>> ranks);

}  // namespace choral::lora
