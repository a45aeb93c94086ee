// The ranges of sampling parameters that need no model to be known.
#pragma once

#include "choral/types.h"

namespace choral::tools {

Status check_sampling(const SamplingParams& params);

}  // namespace choral::tools
