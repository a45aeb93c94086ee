// The flags that say how tokens are chosen. A flag that was not given leaves the value below it: the model's own default or the
// API's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "choral/types.h"

namespace CLI {
class App;
}

namespace choral::apps {

struct SamplingFlags {
  std::optional<int> max_tokens, min_tokens, n, top_k, logprobs, prompt_logprobs;
  std::optional<float> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void put_over(SamplingParams& params) const;
};

void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

}  // namespace choral::apps
