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
class Option;
}  // namespace CLI

namespace choral::apps {

struct SamplingFlags {
  std::optional<int> max_tokens, min_tokens, n, top_k, logprobs, prompt_logprobs;
  std::optional<float> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<float> typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base;
  std::optional<int> penalty_last_n, dry_allowed_length, dry_penalty_last_n;
  std::vector<std::string> dry_sequence_breakers;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void put_over(SamplingParams& params) const;
  // Before a model is opened: are the values in their ranges? `params` as they will be without the flags.
  Status check(SamplingParams params) const;
};

// Small models say nonsense when they do not take their likeliest words, and their newcomers blame the engine: how to ask them.
// Empty for larger ones and for greedy answers.
std::string remark_about_dice(int64_t parameters, float temperature);

// One that nobody foretells.
uint64_t fresh_seed();
// A number from 0 to 2^64-1, or -1 for none. Gives what is wrong with `text`; empty when nothing is.
std::string read_seed(const std::string& text, std::optional<uint64_t>& seed);
CLI::Option* add_seed_flag(CLI::App& app, const std::string& name, std::optional<uint64_t>& seed, const std::string& what);

void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

}  // namespace choral::apps
