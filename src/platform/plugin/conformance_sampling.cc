// Tests of what is done to logits. Rows have so few likely tokens, and draws fall so far from the borders between them, that no
// rounding changes an answer. Token ids stay below 400, where the comparison of results tells neighbours apart.
#include <algorithm>
#include <limits>

#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kVocab = 300, kWidth = 310;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows of logits, and what is asked of them.
struct Vector {
  std::vector<float> logits;
  std::vector<kernels::RowSampling> rows;
  std::vector<kernels::LogitEdit> edits;
  std::vector<uint32_t> mask_words;
  std::vector<int32_t> named;
  int32_t top = 0;

  // The five likely tokens of a row; by ids they end at 0.390, 0.533, 0.676, 0.763 and 1 of the weight. What lies behind the
  // vocabulary is not looked at.
  kernels::RowSampling& add(kernels::RowSampling row) {
    const size_t begin = logits.size();
    logits.resize(begin + kWidth, -8.0F);
    logits[begin + 10] = 8.0F;
    logits[begin + 40] = logits[begin + 90] = 7.0F;
    logits[begin + 200] = 6.5F;
    logits[begin + 299] = 7.5F;
    logits[begin + kVocab] = std::numeric_limits<float>::quiet_NaN();
    row.vocab = kVocab;
    rows.push_back(row);
    return rows.back();
  }
  float& logit(size_t row, size_t token) { return logits[row * kWidth + token]; }
  kernels::RowSampling& add_greedy() { return add({.temperature = 0}); }
  // The filter with draws of every likely token.
  void add_draws(const kernels::RowSampling& filter) {
    for (const double uniform : {0.2, 0.46, 0.6, 0.72, 0.9}) add(filter).uniform = uniform;
  }
  void want_logprobs(kernels::RowSampling& row, int32_t count) {
    row.wants_logprob = 1;
    row.top_begin = top;
    row.top_count = count;
    top += count;
  }
};

// As numbers that can be compared: what is not said is 0.
Results results_of(const Context& ctx, const Vector& vector, const SamplingBatch& batch) {
  const auto choices = to_host(ctx, std::span<const kernels::RowChoice>(batch.choices));
  const auto top = to_host(ctx, std::span<const kernels::TokenLogprob>(batch.top));
  std::vector<float> rows, tops(2 * top.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto& [token, outcome, logprob, top_count] = choices[i];
    const auto& asked = vector.rows[i];
    const bool has_logprob = token >= 0 && asked.wants_logprob != 0;
    rows.insert(rows.end(), {static_cast<float>(token), static_cast<float>(outcome), has_logprob ? logprob : 0.0F,
                             asked.wants_logprob != 0 ? static_cast<float>(top_count) : 0.0F});
    for (int32_t t = asked.top_begin; t < asked.top_begin + std::clamp(top_count, 0, asked.top_count); ++t) {
      tops[2 * t] = static_cast<float>(top[t].token);
      tops[2 * t + 1] = std::max(top[t].logprob, -1000.0F);  // of a token that the row does not have
    }
  }
  const auto placed = [&](const std::vector<float>& values, int64_t cols) {
    const Out matrix = ctx.make_matrix(std::ssize(values) / cols, cols);
    copy_to_device(ctx, {values.data(), matrix.rows, cols}, matrix);
    return matrix;
  };
  return {placed(rows, 4), placed(tops, 2)};
}

Status check(Conformance& conformance, std::string_view feature, const Vector& vector) {
  return conformance.check(feature, [&](ConformanceRun& run) {
    const Context& ctx = run.ctx();
    const Out logits = ctx.make_matrix(std::ssize(vector.rows), kWidth);
    copy_to_device(ctx, {vector.logits.data(), logits.rows, kWidth}, logits);
    const SamplingBatch batch{.rows = place_indices(ctx, std::span(vector.rows)),
                              .edits = place_indices(ctx, std::span(vector.edits)),
                              .mask_words = place_indices(ctx, std::span(vector.mask_words)),
                              .named = place_indices(ctx, std::span(vector.named)),
                              .choices = ctx.memory.make<kernels::RowChoice>(vector.rows.size()),
                              .top = ctx.memory.make<kernels::TokenLogprob>(vector.top)};
    run.call<Sample>(logits, batch);
    return results_of(ctx, vector, batch);
  });
}

Vector greedy_rows() {
  Vector v;
  v.add_greedy();
  v.add_greedy();
  v.logit(1, 10) = 7.5F;  // as much as 299
  v.add_greedy();
  v.logit(2, 0) = 9.0F;
  v.add_greedy();
  for (size_t t = 0; t < kVocab; ++t) v.logit(3, t) = t % 2 == 0 ? -0.0F : 0.0F;  // all alike
  return v;
}

// One that fails leaves the others alone.
Vector broken_rows() {
  Vector v;
  for (int i = 0; i < 5; ++i) v.add_greedy();
  v.logit(1, 299) = std::numeric_limits<float>::quiet_NaN();
  v.logit(2, 0) = kInfinity;
  for (size_t t = 0; t < kVocab; ++t) v.logit(3, t) = -kInfinity;
  return v;
}

Vector drawn_rows(const kernels::RowSampling& filter) {
  Vector v;
  v.add_draws(filter);
  return v;
}

Vector masked_rows() {
  Vector v;
  v.mask_words = {~0U, ~0U << 9, 1U << 26, 0};  // 10 and 90; not 40, nor what lies beyond
  v.add_draws({.temperature = 1, .mask_words = 3});
  auto& nothing = v.add_greedy();
  nothing.mask_begin = 3;
  nothing.mask_words = 1;
  auto& broken = v.add_greedy();  // where nobody may choose it
  broken.mask_words = 1;
  v.logit(v.rows.size() - 1, 299) = std::numeric_limits<float>::quiet_NaN();
  v.add_greedy();
  return v;
}

Vector edited_rows() {
  Vector v;
  v.edits = {{.token = 5, .bias = 20.0F},
             {.token = 10, .bias = -kInfinity},
             {.token = 299, .bias = 1.0F, .repetition = 2.0F},
             {.token = 40, .frequency = 1.5F},
             {.token = 90, .presence = 1.0F},
             {.token = 7, .bias = 30.0F, .repetition = 2.0F, .frequency = 1.0F, .presence = 0.5F},
             {.token = 0, .repetition = 2.0F}};
  for (const auto& [begin, count] : {std::pair(0, 1), std::pair(1, 1), std::pair(1, 2), std::pair(1, 3), std::pair(1, 4)}) {
    auto& row = v.add_greedy();
    row.edit_begin = begin;
    row.edit_count = count;
    v.want_logprobs(row, 2);
  }
  for (const int32_t begin : {5, 6}) {
    auto& row = v.add_greedy();
    row.edit_begin = begin;
    row.edit_count = 1;
    const size_t at = v.rows.size() - 1;
    for (size_t t = 0; t < kVocab; ++t) v.logit(at, t) = -40.0F;
    v.logit(at, 7) = -15.0F;  // becomes 6
    v.logit(at, 0) = -1.0F;   // becomes -2, being below 0
    v.logit(at, 150) = -1.5F;
  }
  return v;
}

Vector logprob_rows() {
  Vector v;
  v.named = {299, 10, 305, 0};
  v.want_logprobs(v.add_greedy(), 4);
  v.want_logprobs(v.add({.uniform = 0.9}), 0);
  auto& named = v.add({.uniform = 0.5});
  named.named_begin = 0;
  v.want_logprobs(named, 4);
  auto& few = v.add_greedy();
  for (size_t t = 0; t < kVocab; ++t) v.logit(3, t) = t % 100 == 1 ? 1.0F : -kInfinity;
  v.want_logprobs(few, 5);
  return v;
}

}  // namespace

Status SoftCap::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(5, kVocab);
    run.call<SoftCap>(x, 0.5F);
    return Results{x};
  });
}

Status Sample::conform(Conformance& conformance) {
  CHORAL_RETURN_IF_ERROR(check(conformance, {}, greedy_rows()));
  CHORAL_RETURN_IF_ERROR(check(conformance, "rows that can't be sampled", broken_rows()));
  CHORAL_RETURN_IF_ERROR(check(conformance, "draws", drawn_rows({})));
  CHORAL_RETURN_IF_ERROR(check(conformance, "a temperature", drawn_rows({.temperature = 0.25F})));
  CHORAL_RETURN_IF_ERROR(check(conformance, "top_k", drawn_rows({.top_k = 3})));  // and the equal of the third
  CHORAL_RETURN_IF_ERROR(check(conformance, "top_p", drawn_rows({.top_p = 0.7F})));
  CHORAL_RETURN_IF_ERROR(check(conformance, "min_p", drawn_rows({.min_p = 0.5F})));
  CHORAL_RETURN_IF_ERROR(check(conformance, "all filters", drawn_rows({.top_p = 0.6F, .min_p = 0.3F, .top_k = 4})));
  CHORAL_RETURN_IF_ERROR(check(conformance, "masks", masked_rows()));
  CHORAL_RETURN_IF_ERROR(check(conformance, "edits", edited_rows()));
  return check(conformance, "log-probabilities", logprob_rows());
}

}  // namespace choral::platform::ops
