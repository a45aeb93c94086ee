// Rows of logits with all that says how each is sampled, as values: what the operator `sample` is given, and what it means.
// A device has the arithmetic of sampling.h in a form of its own (choral/plugin_operators.h); sample_rows() is this host's, for
// rows that a device could not sample. The structs are those of the plug-in interface, byte for byte.
// sample_rows() runs in the calling thread; allocates nothing but scratch.
#pragma once

#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/cpu_level.h"
#include "base/status.h"
#include "kernels/sampling/sampling.h"
#include "tensor/view.h"

namespace choral::kernels {

struct RowExtreme;

// What is done to the logit of a token, in this order. A row has at most one of a token.
struct LogitEdit {
  int32_t token = 0;
  float bias = 0;        // added; −inf removes the token, whatever its logit
  float repetition = 1;  // a logit above 0 is divided by it, any other multiplied
  float frequency = 0;   // subtracted
  float presence = 0;    // subtracted after it
};

// How the token of a row is chosen; what begins at a place lies in the lists of SampledRows. The filters are SamplingSettings.
struct RowSampling {
  double uniform = 0;
  float temperature = 1;
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;
  int32_t vocab = 0;  // leading ones of the row's logits that are its own
  int32_t edit_begin = 0, edit_count = 0;
  int32_t mask_begin = 0, mask_words = 0;  // 0 words: any token
  int32_t wants_logprob = 0;
  int32_t top_begin = 0, top_count = 0;
  int32_t named_begin = -1;  // −1: the most likely tokens; else those that are named from there on, as many
  int32_t reserved = 0;
};

// What came of a row.
enum class RowOutcome : int32_t { kToken, kNaN, kInfinity, kNothingLeft };
RowOutcome outcome_of(const RowExtreme& extreme);
// Fine, or why the row gives no token.
Status status_of(RowOutcome outcome);

struct RowChoice {
  int32_t token = -1;
  RowOutcome outcome = RowOutcome::kToken;
  float logprob = 0;
  int32_t top_count = 0;  // places that were filled
};

struct SampledRows {
  std::span<const RowSampling> rows;
  std::span<const LogitEdit> edits;
  std::span<const uint32_t> mask_words;
  std::span<const int32_t> named;
  std::span<RowChoice> choices;  // [rows]
  std::span<TokenLogprob> top;
};

// logits row i is that of rows[i] and is changed in place. Log-probabilities are those of the row as it came.
void sample_rows(CpuLevel level, MatrixView<float> logits, const SampledRows& sampled, Arena& scratch);

// The edits of a row and its mask, in place.
void edit_row(std::span<float> logits, const RowSampling& row, const SampledRows& sampled);
float edited(float logit, const LogitEdit& edit);
// The log-probability of a token that is named; −inf where the row does not have it.
float named_logprob(std::span<const float> logits, double log_sum_exp, int32_t token);

}  // namespace choral::kernels
