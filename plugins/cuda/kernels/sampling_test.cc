// A token of each row: against plain loops that sort the whole row, with ties, and each row alone against the same among others.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernel_testing.h"

namespace choral_cuda {
namespace {

struct Weighed {
  int32_t token;
  double weight;
};

// What the filters keep of a row whose edits and mask are done, ids ascending.
std::vector<Weighed> kept_of(const std::vector<float>& logits, const choral_sampling_row& rule) {
  std::vector<int32_t> order;
  for (int32_t t = 0; t < rule.vocab; ++t) {
    if (logits[t] > -INFINITY) order.push_back(t);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const double most = logits[order[0]];
  std::vector<Weighed> kept;
  for (const int32_t t : order) {
    const double weight = std::exp((logits[t] - most) / rule.temperature);
    if (weight >= rule.min_p) kept.push_back({t, weight});
  }
  if (rule.top_k > 0 && rule.top_k < std::ssize(kept)) {
    const float kth = logits[kept[rule.top_k - 1].token];
    std::erase_if(kept, [&](const Weighed& w) { return logits[w.token] < kth; });
  }
  if (rule.top_p < 1) {
    double total = 0, sum = 0;
    for (const auto& [t, weight] : kept) total += weight;
    size_t count = 0;
    while (count < kept.size() && (count == 0 || sum < rule.top_p * total)) sum += kept[count++].weight;
    kept.resize(count);
  }
  std::sort(kept.begin(), kept.end(), [](const Weighed& a, const Weighed& b) { return a.token < b.token; });
  return kept;
}

// Rows of one call, and what came of them.
class SampleRows {
 public:
  SampleRows(int64_t rows, int64_t cols) : logits_(rows, cols) {
    for (int64_t i = 0; i < rows; ++i) {
      rules_.push_back({.temperature = 1, .top_p = 1, .vocab = static_cast<int32_t>(cols), .named_begin = -1});
    }
  }
  TestMatrix& logits() { return logits_; }
  choral_sampling_row& rule(int64_t i) { return rules_[i]; }
  Shared<choral_logit_edit>& edits() { return edits_; }
  Shared<uint32_t>& mask() { return mask_; }
  Shared<int32_t>& named() { return named_; }
  const choral_sampled_row& sampled(int64_t i) const { return sampled_[i]; }
  const choral_token_logprob& top(int64_t i) const { return top_[i]; }
  void want_logprobs(int64_t i, int32_t count) {
    rules_[i].wants_logprob = 1;
    rules_[i].top_begin = static_cast<int32_t>(top_.size());
    rules_[i].top_count = count;
    top_.resize(top_.size() + static_cast<size_t>(count), {-7, NAN});
  }
  // The logits of before are there again afterwards.
  Fault run(int64_t begin = 0, int64_t count = -1) {
    if (count < 0) count = logits_.rows() - begin;
    sampled_.assign(rules_.size(), {-7, -7, NAN, -7});
    const TestMatrix before = logits_;
    const choral_sample_args args{.logits = logits_.rows_from(begin, count),
                                  .rows = rules_.data() + begin,
                                  .edits = edits_.data(),
                                  .edit_count = std::ssize(edits_),
                                  .mask_words = mask_.data(),
                                  .mask_word_count = std::ssize(mask_),
                                  .named = named_.data(),
                                  .named_count = std::ssize(named_),
                                  .sampled = sampled_.data() + begin,
                                  .top = top_.data(),
                                  .top_count = std::ssize(top_)};
    TestLaunch launch(sample_scratch_bytes(args));
    EXPECT_EQ(done(sample(launch.get(), args)), cudaSuccess);
    EXPECT_TRUE(logits_.gaps_are_whole());
    logits_ = before;
    return launch.fault();
  }
  int32_t token(int64_t i) const { return sampled_[i].token; }

 private:
  TestMatrix logits_;
  Shared<choral_sampling_row> rules_;
  Shared<choral_logit_edit> edits_;
  Shared<uint32_t> mask_;
  Shared<int32_t> named_;
  Shared<choral_sampled_row> sampled_;
  Shared<choral_token_logprob> top_;
};

struct Filters {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
};
constexpr Filters kFilters[] = {{1, 0, 1, 0},     {0.5f, 0, 1, 0},        {1, 7, 1, 0}, {2, 0, 0.6f, 0},      {1, 0, 1, 0.2f},
                                {1, 40, 0.8f, 0}, {0.7f, 9, 0.5f, 0.05f}, {1, 1, 1, 0}, {1, 1 << 20, 0.0f, 0}};

// Each filter with draws in the middle of some tokens' shares, so that no rounding changes an answer.
void expect_draws(int64_t vocab, const std::vector<float>& logits) {
  constexpr int64_t kDraws = 4;
  SampleRows rows(std::size(kFilters) * kDraws, vocab);
  std::vector<int32_t> wanted;
  for (int64_t i = 0; i < rows.logits().rows(); ++i) {
    const Filters& filter = kFilters[i / kDraws];
    choral_sampling_row& rule = rows.rule(i);
    rows.logits().set_row(i, logits);
    rule.temperature = filter.temperature;
    rule.top_k = filter.top_k;
    rule.top_p = filter.top_p;
    rule.min_p = filter.min_p;
    const auto kept = kept_of(logits, rule);
    double total = 0;
    for (const auto& [token, weight] : kept) total += weight;
    const size_t heavy = static_cast<size_t>(
        std::max_element(kept.begin(), kept.end(), [](const Weighed& a, const Weighed& b) { return a.weight < b.weight; }) -
        kept.begin());
    const size_t place = i % kDraws == 0 ? heavy : kept.size() * static_cast<size_t>(i % kDraws) / kDraws;
    double before = 0;
    for (size_t k = 0; k < place; ++k) before += kept[k].weight;
    rule.uniform = (before + kept[place].weight / 2) / total;
    wanted.push_back(kept[place].token);
  }
  EXPECT_EQ(rows.run(), kNoFault);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(rows.token(static_cast<int64_t>(i)), wanted[i])
        << "filter " << i / kDraws << ", draw " << i % kDraws << " of " << vocab;
    EXPECT_EQ(rows.sampled(static_cast<int64_t>(i)).outcome, CHORAL_TOKEN_CHOSEN);
  }
}

std::vector<float> random_logits(int64_t vocab, uint32_t seed, float scale) {
  const auto values = random_floats(vocab, seed, scale);
  return {values.begin(), values.end()};
}

TEST(Sample, DrawsAreThoseOfPlainLoops) {
  for (const int64_t vocab : {1, 2, 33, 1000, 5000}) expect_draws(vocab, random_logits(vocab, 1, 4));
}

// Of few values, so that every border of a filter falls among equals.
TEST(Sample, EqualsAreKeptAsOneOrByTheirIds) {
  for (const int64_t vocab : {40, 3000}) {
    auto logits = random_logits(vocab, 2, 2);
    for (float& x : logits) x = std::round(x);  // -0 as well as 0
    expect_draws(vocab, logits);
    expect_draws(vocab, std::vector<float>(vocab, -3.0f));
  }
}

TEST(Sample, AWideVocabularyIsSampled) {
  constexpr int64_t kVocab = 270'000;
  SampleRows rows(3, kVocab);
  rows.logits().fill(3, 2);
  for (const int64_t at : {0, 1, 2}) rows.logits().at(at, kVocab - 1) = 30;
  rows.rule(0).temperature = 0;
  rows.rule(1).top_p = 0.5f;
  rows.rule(2).top_k = 50;
  rows.rule(2).uniform = 0.5;
  EXPECT_EQ(rows.run(), kNoFault);
  for (const int64_t i : {0, 1, 2}) EXPECT_EQ(rows.token(i), kVocab - 1) << i;
}

TEST(Sample, GreedyTakesTheFirstOfEquals) {
  constexpr int64_t kVocab = 2500;
  SampleRows rows(4, kVocab);
  rows.logits().fill(1, 2);
  for (int64_t i = 0; i < 4; ++i) rows.rule(i).temperature = 0;
  rows.logits().at(0, 2400) = rows.logits().at(0, 77) = 5;
  for (int64_t t = 0; t < kVocab; ++t) rows.logits().at(1, t) = t == 0 ? -0.0f : t == 1 ? 0.0f : -1.0f;
  for (int64_t t = 0; t < kVocab; ++t) rows.logits().at(2, t) = t == 9 ? -1e30f : -INFINITY;
  rows.logits().at(3, 2000) = 7;
  rows.rule(3).vocab = 2000;  // what lies behind it is not looked at
  rows.logits().at(3, 1999) = 6;
  EXPECT_EQ(rows.run(), kNoFault);
  const int32_t wanted[] = {77, 0, 9, 1999};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(rows.token(i), wanted[i]) << i;
}

TEST(Sample, ARowThatGivesNoTokenSaysWhy) {
  constexpr int64_t kVocab = 1500;
  SampleRows rows(6, kVocab);
  rows.logits().fill(1);
  rows.logits().at(0, 1400) = NAN;
  rows.logits().at(1, 3) = std::copysign(NAN, -1.0f);
  rows.logits().at(2, 3) = INFINITY;
  for (int64_t t = 0; t < kVocab; ++t) rows.logits().at(3, t) = -INFINITY;
  rows.mask() = {0, 1};
  rows.rule(4).mask_words = 1;
  rows.logits().at(5, 3) = NAN;  // which nobody may choose
  rows.rule(5).mask_begin = 1;
  rows.rule(5).mask_words = 1;
  EXPECT_EQ(rows.run(), kNoFault);
  const int32_t outcomes[] = {CHORAL_LOGITS_NAN,    CHORAL_LOGITS_NAN,    CHORAL_LOGITS_INFINITE,
                              CHORAL_NO_TOKEN_LEFT, CHORAL_NO_TOKEN_LEFT, CHORAL_TOKEN_CHOSEN};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rows.sampled(i).outcome, outcomes[i]) << i;
    EXPECT_EQ(rows.token(i), i < 5 ? -1 : 0) << i;
  }
}

TEST(Sample, EditsAreMadeInTheirOrderAndLogprobsAreOfBefore) {
  constexpr int64_t kVocab = 1200;
  SampleRows rows(2, kVocab);
  rows.logits().fill(1);
  rows.logits().at(0, 5) = -2;
  rows.logits().at(0, 6) = NAN;
  rows.logits().at(0, 7) = 2.7f;
  rows.logits().at(1, 5) = 3.5f;
  //  5: -2 + 9 = 7, / 2 = 3.5, - 0.5 - 0.25 = 2.75, a little more than 7 has
  rows.edits() = {{.token = 6, .bias = -INFINITY, .repetition = 1},
                  {.token = 5, .bias = 9, .repetition = 2, .frequency = 0.5f, .presence = 0.25f},
                  {.token = 5, .bias = -INFINITY, .repetition = 1}};
  rows.rule(0).temperature = rows.rule(1).temperature = 0;
  rows.rule(0).edit_count = 2;
  rows.rule(1).edit_begin = 2;
  rows.rule(1).edit_count = 1;
  rows.want_logprobs(1, 2);
  EXPECT_EQ(rows.run(), kNoFault);
  EXPECT_EQ(rows.token(0), 5);
  const auto logits = rows.logits().row(1);
  int32_t second = 0;
  double sum = 0;
  for (int32_t t = 0; t < kVocab; ++t) {
    sum += std::exp(double{logits[t]});
    if (t != 5 && logits[t] > logits[second]) second = t;
  }
  EXPECT_EQ(rows.token(1), second);
  EXPECT_NEAR(rows.sampled(1).logprob, logits[second] - std::log(sum), 1e-5);
  EXPECT_EQ(rows.top(0).token, 5) << "the most likely one before it was removed";
  EXPECT_NEAR(rows.top(0).logprob, 3.5 - std::log(sum), 1e-5);
  rows.rule(1).edit_begin = 1;  // an edited token is chosen
  EXPECT_EQ(rows.run(1), kNoFault);
  EXPECT_EQ(rows.token(1), 5);
  EXPECT_NEAR(rows.sampled(1).logprob, 3.5 - std::log(sum), 1e-5);
}

TEST(Sample, MostLikelyTokensAreSortedAndNamedOnesAreNot) {
  constexpr int64_t kVocab = 3000;
  SampleRows rows(3, kVocab);
  rows.logits().fill(4, 3);
  for (int64_t t = 0; t < kVocab; ++t) rows.logits().at(0, t) = std::round(rows.logits().at(0, t));
  rows.logits().at(0, 70) = NAN;
  rows.logits().at(0, 71) = -NAN;
  for (int64_t t = 0; t < kVocab; ++t) {
    if (t % 1000 != 1) rows.logits().at(1, t) = -INFINITY;
  }
  rows.want_logprobs(0, kMostTopLogprobs);
  rows.want_logprobs(1, 5);
  rows.want_logprobs(2, 3);
  rows.rule(2).named_begin = 1;
  rows.named() = {0, 2999, 3000, 12};
  EXPECT_EQ(rows.run(), kNoFault);

  std::vector<int32_t> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  const auto logits = rows.logits().row(0);
  std::erase_if(order, [&](int32_t t) { return std::isnan(logits[t]); });
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  EXPECT_EQ(rows.sampled(0).top_count, kMostTopLogprobs);
  for (int64_t i = 0; i < kMostTopLogprobs; ++i) EXPECT_EQ(rows.top(i).token, order[i]) << i;
  EXPECT_TRUE(std::isnan(rows.top(0).logprob)) << "the sum has a NaN";

  const int64_t few = rows.rule(1).top_begin;
  EXPECT_EQ(rows.sampled(1).top_count, 3);
  EXPECT_EQ(rows.top(few + 3).token, -7) << "there are no more";
  for (int64_t i = 1; i < 3; ++i) EXPECT_GE(rows.top(few + i - 1).logprob, rows.top(few + i).logprob);

  const int64_t named = rows.rule(2).top_begin;
  double sum = 0;
  for (const float x : rows.logits().row(2)) sum += std::exp(double{x});
  EXPECT_EQ(rows.top(named).token, 2999);
  EXPECT_NEAR(rows.top(named).logprob, rows.logits().at(2, 2999) - std::log(sum), 1e-5);
  EXPECT_EQ(rows.top(named + 1).logprob, -INFINITY);
  EXPECT_EQ(rows.top(named + 2).token, 12);
}

TEST(Sample, ARowAloneHasTheSameBits) {
  constexpr int64_t kRows = 6, kVocab = 1111;
  SampleRows rows(kRows, kVocab);
  rows.logits().fill(5, 3);
  for (int64_t i = 0; i < kRows; ++i) {
    rows.rule(i).uniform = 0.1 + 0.15 * static_cast<double>(i);
    rows.rule(i).top_p = i % 2 == 0 ? 0.9f : 1;
    rows.want_logprobs(i, 4);
  }
  EXPECT_EQ(rows.run(), kNoFault);
  std::vector<choral_sampled_row> together;
  std::vector<choral_token_logprob> tops;
  for (int64_t i = 0; i < kRows; ++i) together.push_back(rows.sampled(i));
  for (int64_t i = 0; i < 4 * kRows; ++i) tops.push_back(rows.top(i));
  for (int64_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(rows.run(i, 1), kNoFault);
    EXPECT_EQ(std::memcmp(&together[i], &rows.sampled(i), sizeof together[i]), 0) << i;
    EXPECT_EQ(std::memcmp(&tops[4 * i], &rows.top(4 * i), 4 * sizeof tops[0]), 0) << i;
  }
}

// The row is left alone, and its neighbour is sampled.
TEST(Sample, WhatIsNotThereIsAFault) {
  const auto faulty = [](auto spoil) {
    SampleRows rows(2, 100);
    rows.logits().fill(1);
    rows.edits() = {{.token = 1, .repetition = 1}};
    rows.mask() = {~0u};
    rows.named() = {4};
    rows.rule(1).temperature = 0;
    rows.want_logprobs(0, 1);
    spoil(rows, rows.rule(0));
    const Fault fault = rows.run();
    EXPECT_EQ(rows.sampled(1).outcome, CHORAL_TOKEN_CHOSEN);
    return fault;
  };
  using Rule = choral_sampling_row;
  EXPECT_EQ(faulty([](auto&, Rule&) {}), kNoFault);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.vocab = 101; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.vocab = 0; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.edit_count = 2; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.mask_begin = 1, r.mask_words = 1; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.top_begin = 1; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.top_count = -1; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto&, Rule& r) { r.named_begin = 1; }), kSampledBeyond);
  EXPECT_EQ(faulty([](auto& rows, Rule& r) { r.edit_count = 1, rows.edits()[0].token = 100; }), kSampledBeyond);
}

}  // namespace
}  // namespace choral_cuda
