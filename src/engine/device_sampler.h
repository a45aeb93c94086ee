// A step's tokens where the device samples (Session::samples): logits stay in its memory. The rows' rules become values
// (kernels/sampling/sampled_rows.h) that go to the device before the forward pass, so that no copy comes between its operators.
// Tokens, and the log-probabilities that were asked for, come back in one copy. The answers are the sampler's (sampler.h), up to
// the rounding of the device's own e^x. Rows that need the host (sampling_rule.h) have their place here, but get no token.
// Engine thread. Lists grow to the largest step's. A request with penalties has edits that grow with its tokens, by doubling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "platform/ops/arguments.h"

namespace choral::engine {

class DeviceSampler {
 public:
  // `vocab`: the most logits that a row has.
  DeviceSampler(const platform::Context& ctx, int64_t vocab, int64_t max_rows);

  // Before the forward pass: what the step's rows ask for.
  void place(std::span<const SampledRow> rows);
  // Behind it, with the same rows: logits row i is that of rows[i]. The logits are the device's to change.
  void sample(MatrixView<float> logits, std::span<const SampledRow> rows);

 private:
  void add_row(const SampledRow& row);
  void add_mask(const SampledRow& row, kernels::RowSampling& to);
  void add_edits(const SampledRow& row, kernels::RowSampling& to);
  void add_penalties(const SampledRow& row, size_t begin);  // of its edits
  void add_dry(const SampledRow& row);
  kernels::LogitEdit& edit_of(int32_t token);
  void ban(std::span<const int32_t> tokens, int64_t vocab);

  const platform::Context& ctx_;
  std::vector<kernels::RowSampling> rows_;
  std::vector<kernels::LogitEdit> edits_;
  std::vector<uint32_t> mask_words_;
  std::vector<int32_t> named_;
  int32_t top_count_ = 0;
  std::vector<int32_t> edit_places_;  // of the row's tokens in edits_, or kNone. [vocab]
  platform::SamplingBatch batch_;
  std::span<std::byte> results_;  // what batch_ has them written to, on the device
};

}  // namespace choral::engine
