#include "tools/sampling_check.h"

#include <limits>

#include "engine/sampling_check.h"

namespace choral::tools {

Status check_sampling(const SamplingParams& params) {
  return engine::check_sampling(params, std::numeric_limits<int32_t>::max());
}

}  // namespace choral::tools
