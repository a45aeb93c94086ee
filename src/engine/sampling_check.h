// The ranges of sampling parameters: the first that is out of range is named with what it may be.
#pragma once

#include <cstdint>

#include "choral/types.h"

namespace choral::engine {

Status check_sampling(const SamplingParams& params, int32_t vocab);

}  // namespace choral::engine
