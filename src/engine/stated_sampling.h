// The sampling that a model's files state. A value that they do not state is left as it was.
#pragma once

#include <optional>

#include "choral/types.h"
#include "io/config_map.h"

namespace choral::engine {

class StatedSampling {
 public:
  static Result<StatedSampling> read(const io::ConfigMap& generation_config);
  SamplingParams over(SamplingParams params) const;

 private:
  std::optional<double> temperature_, top_p_, min_p_, repetition_penalty_;
  std::optional<int64_t> top_k_;
};

}  // namespace choral::engine
