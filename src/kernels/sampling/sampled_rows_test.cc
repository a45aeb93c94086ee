// Rows sampled as values: against the plain loops, and each kind of row against what it says.
#include "kernels/sampling/sampled_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ref/sampling.h"

namespace choral::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kVocab = 70;

class SampledRowsTest : public ::testing::Test {
 protected:
  // Adds a row of random logits whose vocabulary is the whole width.
  RowSampling& add(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (int64_t i = 0; i < kVocab; ++i) logits_.push_back(normal(random));
    rows_.push_back({.vocab = kVocab});
    return rows_.back();
  }
  float& logit(size_t row, int64_t token) { return logits_[row * kVocab + static_cast<size_t>(token)]; }
  void run(bool plain = false) {
    choices_.assign(rows_.size(), {});
    auto logits = logits_;
    const MatrixView<float> matrix{logits.data(), std::ssize(rows_), kVocab};
    const SampledRows sampled{rows_, edits_, mask_, named_, choices_, top_};
    plain ? ref::sample_rows(matrix, sampled) : sample_rows(cpu_level(), matrix, sampled, scratch_);
  }

  Arena scratch_;
  std::vector<float> logits_;
  std::vector<RowSampling> rows_;
  std::vector<LogitEdit> edits_;
  std::vector<uint32_t> mask_;
  std::vector<int32_t> named_;
  std::vector<RowChoice> choices_;
  std::vector<TokenLogprob> top_;
};

TEST_F(SampledRowsTest, ChoosesAsThePlainLoops) {
  mask_ = {0xAAAAAAAAu, 0x0000FFFFu};
  edits_ = {{.token = 3, .bias = 9}, {.token = 69, .bias = 2, .repetition = 1.5f, .frequency = 0.5f, .presence = 0.25f}};
  named_ = {3, 69, 1000, 0};
  top_.resize(300);
  for (uint32_t i = 0; i < 40; ++i) {
    RowSampling& row = add(i);
    row.temperature = i % 5 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(i % 7);
    row.uniform = 0.05 + 0.9 * (i * 37 % 40) / 40;
    row.top_k = i % 3 == 0 ? 5 : 0;
    row.top_p = i % 4 == 0 ? 0.7f : 1.0f;
    row.min_p = i % 7 == 0 ? 0.1f : 0.0f;
    if (i % 2 == 0) row.edit_count = 2;
    if (i % 3 == 1) row.mask_words = 2;
    row.wants_logprob = i % 2 == 1 ? 1 : 0;
    row.top_begin = static_cast<int32_t>(7 * i);
    row.top_count = row.wants_logprob != 0 ? 4 : 0;
    row.named_begin = i % 4 == 3 ? 0 : -1;
  }
  run(/*plain=*/true);
  const auto wanted = choices_;
  const auto wanted_top = top_;
  run();
  for (size_t i = 0; i < rows_.size(); ++i) {
    EXPECT_EQ(choices_[i].token, wanted[i].token) << i;
    EXPECT_EQ(choices_[i].outcome, RowOutcome::kToken) << i;
    EXPECT_EQ(choices_[i].top_count, wanted[i].top_count) << i;
    EXPECT_NEAR(choices_[i].logprob, wanted[i].logprob, 1e-5) << i;
    for (int32_t t = 0; t < wanted[i].top_count; ++t) {
      const auto &a = top_[rows_[i].top_begin + t], &b = wanted_top[rows_[i].top_begin + t];
      EXPECT_EQ(a.token, b.token) << i;
      if (std::isinf(b.logprob))
        EXPECT_EQ(a.logprob, -kInf);
      else
        EXPECT_NEAR(a.logprob, b.logprob, 1e-5) << i;
    }
  }
}

TEST_F(SampledRowsTest, EditsKeepTheirOrder) {
  const LogitEdit all{.token = 0, .bias = -3, .repetition = 2, .frequency = 1, .presence = 0.5f};
  EXPECT_EQ(edited(5, all), 2.0f / 2 - 1 - 0.5f);
  EXPECT_EQ(edited(1, all), -2.0f * 2 - 1 - 0.5f) << "the sign is that after the bias";
  EXPECT_EQ(edited(kInf, {.token = 0, .bias = -kInf}), -kInf);
  EXPECT_EQ(edited(NAN, {.token = 0, .bias = -kInf}), -kInf);
}

TEST_F(SampledRowsTest, ABrokenRowSaysWhatIsWrongAndAloneFails) {
  for (uint32_t i = 0; i < 5; ++i) add(i).temperature = 0;
  logit(1, 69) = NAN;
  logit(2, 0) = kInf;
  rows_[3].mask_words = 1;
  mask_ = {0};
  run();
  const RowOutcome outcomes[] = {RowOutcome::kToken, RowOutcome::kNaN, RowOutcome::kInfinity, RowOutcome::kNothingLeft,
                                 RowOutcome::kToken};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(choices_[i].outcome, outcomes[i]) << i;
    EXPECT_EQ(choices_[i].token < 0, i % 4 != 0) << i;
    EXPECT_EQ(status_of(choices_[i].outcome).ok(), i % 4 == 0) << i;
  }
  EXPECT_EQ(status_of(static_cast<RowOutcome>(9)).code(), Code::kInternal);
}

TEST_F(SampledRowsTest, ARowIsAsWideAsItsVocabulary) {
  RowSampling& row = add(1);
  row.temperature = 0;
  row.vocab = 10;
  row.wants_logprob = 1;
  row.top_count = 12;
  top_.resize(12);
  logit(0, 10) = 100;
  logit(0, 4) = 50;
  logit(0, 5) = NAN;
  row.mask_words = 1;
  mask_ = {~(1u << 5)};
  run();
  EXPECT_EQ(choices_[0].token, 4) << "a NaN that is masked is no harm";
  EXPECT_EQ(choices_[0].top_count, 9) << "and is no token to be told of";
}

}  // namespace
}  // namespace choral::kernels
