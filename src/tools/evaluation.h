// Perplexity of a text under a model as it is served, and how far its distributions are from a reference's: the model of
// other files or options, or logits that an earlier run saved. What `choral eval` prints. Memory holds the logits of one step of
// each model, never more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "choral/llm.h"

namespace choral::tools {

struct EvaluatedModel {
  EngineOptions engine = {};              // limits of requests and of the batch are set by what an evaluation needs
  std::vector<AdapterUse> adapters = {};  // who answers; none: the base
};

struct EvaluationProgress {
  int64_t scored = 0, total = 0;  // tokens
  double nll = 0;                 // mean so far
};

struct EvaluationOptions {
  EvaluatedModel measured = {};
  std::string text = {};                         // UTF-8
  std::string text_name = {};                    // for messages
  int window_tokens = 0;                         // 0: 512, or the model's context where that is shorter
  int min_context = 1;                           // tokens with fewer before them in their window do not count
  int64_t max_tokens = 0;                        // the first so many of the text; 0: all
  std::optional<EvaluatedModel> reference = {};  // this one or the next, or none
  std::string saved_reference = {};              // a file of what `save` was given
  // Takes the pieces of a file that is a reference for later runs. Empty: nobody wants it.
  std::function<Status(std::string_view)> save = {};
  std::function<void(const EvaluationProgress&)> on_progress = {};
};

struct Estimate {
  double value = 0;
  double error = 0;  // standard error
};

// What was found for each token that counts, in the order of the text.
struct ReferenceFindings {
  std::string model;
  std::vector<float> logprobs;      // the reference's
  std::vector<double> divergences;  // Σ p·log(p / q) over the vocabulary, in nats, p the reference's
  int64_t same_top = 0;             // places with the same most likely token
};
struct EvaluationReport {
  std::string model;
  std::vector<std::string> notes;  // of the load
  int window_tokens = 0;
  int64_t windows = 0;
  int64_t text_tokens = 0;
  std::vector<float> logprobs;
  double compute_s = 0;  // in the measured model's steps
  int64_t computed_tokens = 0;
  std::optional<ReferenceFindings> reference;
};

Result<EvaluationReport> evaluate(const EvaluationOptions& options);

Estimate mean_of(std::span<const double> values);
Estimate mean_nll(std::span<const float> logprobs);
Estimate perplexity(std::span<const float> logprobs);
// Perplexity over the reference's. Token by token, so what both find hard does not blur it.
Estimate perplexity_ratio(std::span<const float> logprobs, std::span<const float> reference);
// The value below which `share` of them lie, between neighbours by their distance; 0 of none.
double quantile(std::vector<double> values, double share);

}  // namespace choral::tools
