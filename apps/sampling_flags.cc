#include "sampling_flags.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "engine/sampling_check.h"

namespace choral::apps {

std::string remark_about_dice(int64_t parameters, float temperature) {
  constexpr int64_t kSmall = 1'000'000'000;
  if (parameters >= kSmall || temperature == 0) return "";
  return fmt::format(
      "a model of {:.0f}M parameters soon loses the thread when dice choose its words (temperature {}): --temperature 0, or /set "
      "temperature 0 here, takes the likeliest ones",
      static_cast<double>(parameters) * 1e-6, temperature);
}

// getrandom fails only for sizes above 256 bytes or before the system has any randomness.
uint64_t fresh_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = static_cast<uint64_t>(getpid());
  return seed;
}

std::string read_seed(const std::string& text, std::optional<uint64_t>& seed) {
  if (text == "-1") return seed.reset(), "";
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return fmt::format("'{}' is not a whole number from 0 to 2^64-1, nor -1 for none", text);
  seed = value;
  return "";
}

void SamplingFlags::put_over(SamplingParams& params) const {
  const auto put = [](const auto& given, auto& value) {
    if (given) value = *given;
  };
  put(max_tokens, params.max_tokens);
  put(min_tokens, params.min_tokens);
  put(n, params.n);
  put(top_k, params.top_k);
  put(temperature, params.temperature);
  put(top_p, params.top_p);
  put(min_p, params.min_p);
  put(presence_penalty, params.presence_penalty);
  put(frequency_penalty, params.frequency_penalty);
  put(repetition_penalty, params.repetition_penalty);
  put(penalty_last_n, params.penalty_last_n);
  put(typical_p, params.typical_p);
  put(top_n_sigma, params.top_n_sigma);
  put(xtc_probability, params.xtc_probability);
  put(xtc_threshold, params.xtc_threshold);
  put(dry_multiplier, params.dry_multiplier);
  put(dry_base, params.dry_base);
  put(dry_allowed_length, params.dry_allowed_length);
  put(dry_penalty_last_n, params.dry_penalty_last_n);
  if (dry_sequence_breakers == std::vector<std::string>{"none"}) {
    params.dry_sequence_breakers.clear();
  } else if (!dry_sequence_breakers.empty()) {
    params.dry_sequence_breakers = dry_sequence_breakers;
  }
  if (logprobs) params.logprobs = logprobs;
  if (prompt_logprobs) params.prompt_logprobs = prompt_logprobs;
  if (seed) params.seed = seed;
  if (!stop.empty()) params.stop = stop;
  if (ignore_eos) params.ignore_eos = true;
}

Status SamplingFlags::check(SamplingParams params) const {
  put_over(params);
  return engine::check_sampling(params, std::numeric_limits<int32_t>::max());  // no model tells its vocabulary yet
}

// CLI11 itself takes -2 for 2^64-2 and what is past 2^64-1 for that.
CLI::Option* add_seed_flag(CLI::App& app, const std::string& name, std::optional<uint64_t>& seed, const std::string& what) {
  const auto check = [](const std::string& text) {
    std::optional<uint64_t> ignored;
    return read_seed(text, ignored);
  };
  const auto take = [&seed](const CLI::results_t& texts) { return read_seed(texts.back(), seed).empty(); };
  return app.add_option(name, take, what)->type_name("N")->check(check);
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const auto option = [&app](const char* names, auto& value, const char* what, const char* type) {
    return app.add_option(names, value, what)->type_name(type)->group("Sampling");
  };
  option("-n,--max-tokens,--n-predict,--predict", flags.max_tokens, "most tokens of an answer; 0 or -1 = up to the context's end",
         "N")
      ->check([](const std::string& text) {
        const bool is_less = text.starts_with('-') && text != "-1";
        return is_less ? fmt::format("{} tokens? Give 1 or more, or 0 or -1 for up to the context's end", text) : "";
      })
      ->transform([](const std::string& text) { return text == "-1" ? "0" : text; });
  option("--min-tokens", flags.min_tokens, "no end before this many tokens", "N");
  option("--n", flags.n, "answers to each prompt", "N");
  option("--temperature,--temp", flags.temperature, "0 = always the likeliest token", "X");
  option("--top-k", flags.top_k, "choose among the k likeliest; 0 = all", "N");
  option("--top-p", flags.top_p, "choose among the likeliest that together have p", "X");
  option("--min-p", flags.min_p, "at least this fraction of the likeliest one's probability", "X");
  add_seed_flag(app, "--seed", flags.seed, "the same seed gives the same text, whatever else is in the batch; -1 = none")
      ->group("Sampling");
  option("--stop", flags.stop, "end before this text; may be repeated", "TEXT")->allow_extra_args(false);
  option("--presence-penalty", flags.presence_penalty, "-2 to 2", "X");
  option("--frequency-penalty", flags.frequency_penalty, "-2 to 2", "X");
  option("--repetition-penalty,--repeat-penalty", flags.repetition_penalty, "above 0; 1 = none", "X");
  option("--repeat-last-n", flags.penalty_last_n, "these three look at so many last tokens; -1 = all, 0 = off", "N");
  option("--typical,--typical-p", flags.typical_p, "choose among locally typical tokens that together have p; 1 = off", "X");
  option("--top-n-sigma,--top-nsigma", flags.top_n_sigma, "logits within n standard deviations of the largest; -1 = off", "X");
  option("--xtc-probability", flags.xtc_probability, "how often the likeliest tokens are dropped; 0 = off", "X");
  option("--xtc-threshold", flags.xtc_threshold, "all that have this probability, but the last of them (0.1)", "X");
  option("--dry-multiplier", flags.dry_multiplier, "DRY, against repetitions; 0 = off", "X");
  option("--dry-base", flags.dry_base, "how its penalty grows with each repeated token (1.75)", "X");
  option("--dry-allowed-length", flags.dry_allowed_length, "repetitions of fewer tokens are free (2)", "N");
  option("--dry-penalty-last-n", flags.dry_penalty_last_n, "it looks at so many last tokens; -1 = all, 0 = off", "N");
  option("--dry-sequence-breaker", flags.dry_sequence_breakers,
         "no repetition goes over this text; may be repeated; none = no such text (newline, :, \", *)", "TEXT")
      ->allow_extra_args(false);
  option("--logprobs", flags.logprobs, "also give the log probabilities of the N likeliest (with --json)", "N");
  option("--prompt-logprobs", flags.prompt_logprobs, "the same for the prompt's tokens", "N");
  app.add_flag("--ignore-eos", flags.ignore_eos, "do not stop at the model's end token")->group("Sampling");
}

}  // namespace choral::apps
