// From the logits of a step's rows to tokens: each row by its own request's parameters, rows in parallel.
// A row's token depends on its logits, its parameters, its own history and (seed, position) only: same seed = same text in any
// batch. Engine thread; allocates nothing: each thread has its scratch from the start.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine_request.h"
#include "engine/step_output.h"
#include "platform/context.h"

namespace choral::engine {

class Sampler {
 public:
  Sampler(const platform::Context& ctx, int64_t vocab);

  // logits row i belongs to requests[i] and gives out[i]; the logits are changed in place.
  void sample(MatrixView<float> logits, std::span<EngineRequest* const> requests, std::span<SampledToken* const> out);
  // Log-probability of `token` in an untouched row, and the most likely ones.
  PositionLogprobs logprobs_of(std::span<const float> logits, int32_t token, int top) const;

 private:
  void sample_row(std::span<float> logits, const EngineRequest& request, SampledToken& out, Arena& scratch) const;

  const platform::Context& ctx_;
  std::vector<std::unique_ptr<Arena>> scratch_;  // one a thread
};

}  // namespace choral::engine
