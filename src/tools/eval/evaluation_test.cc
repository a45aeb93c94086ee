// The whole evaluation on tiny models: its figures are those of the public API's log-probabilities and of plain sums in double.
#include "tools/evaluation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"
#include "synthetic/adapter.h"
#include "tools/eval/window_engine.h"
#include "tools/step_timer.h"

namespace choral::tools {
namespace {

using ::testing::HasSubstr;

EngineOptions tiny(const std::string& model = "tiny-llama3") {
  EngineOptions options;
  options.model = std::string(CHORAL_TEST_DATA) + "/models/" + model;
  options.threads = 2;
  return options;
}

// About two tokens a word.
std::string text_of(int words) {
  static constexpr const char* kWords[] = {"the ", "model ", "reads a ", "text; ", "Überall ", "1234 ", "and\n", "counts "};
  std::string text;
  for (int i = 0; i < words; ++i) text += kWords[(i * 7 + i / 3) % std::size(kWords)];
  return text;
}

EvaluationOptions evaluation_of(std::string text, int window, EngineOptions engine = tiny()) {
  EvaluationOptions options;
  options.measured.engine = std::move(engine);
  options.text = std::move(text);
  options.text_name = "text.txt";
  options.window_tokens = window;
  return options;
}

EvaluationReport evaluate_or_die(const EvaluationOptions& options) {
  auto report = evaluate(options);
  CHORAL_CHECK(report.ok(), report.status().to_string());
  return std::move(*report);
}

std::unique_ptr<LLM> load_or_die(const EngineOptions& options) {
  auto llm = LLM::load(options);
  CHORAL_CHECK(llm.ok(), llm.status().to_string());
  return std::move(*llm);
}

// What the API says of the tokens of a prompt, from its second on.
std::vector<float> prompt_logprobs(LLM& llm, const std::vector<int32_t>& prompt, const std::vector<AdapterUse>& adapters = {}) {
  Request request{.prompt_token_ids = prompt, .adapters = adapters};
  request.sampling.max_tokens = 1;
  request.sampling.prompt_logprobs = 0;
  const auto output = llm.generate({request}).front();
  CHORAL_CHECK(output.status.ok(), output.status.to_string());
  std::vector<float> logprobs;
  for (const auto& position : output.prompt_logprobs) logprobs.push_back(position.chosen.logprob);
  return logprobs;
}

std::vector<int32_t> cut(const std::vector<int32_t>& ids, size_t begin, size_t count) {
  return {ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(std::min(begin + count, ids.size()))};
}

void append(std::vector<float>& to, const std::vector<float>& values) { to.insert(to.end(), values.begin(), values.end()); }

// The tiny model as fewer bits hold it.
EngineOptions perturbed() {
  auto options = tiny("tiny-qwen2");
  options.quantization = "w8a8_dynamic";
  return options;
}

TEST(Evaluation, GivesThePromptLogprobsOfEachWindow) {
  const auto llm = load_or_die(tiny("tiny-qwen2"));  // its tokenizer puts nothing before a text
  const auto ids = *llm->tokenize(text_of(120), false);
  ASSERT_EQ(ids, *llm->tokenize(text_of(120), true));
  ASSERT_NE(ids.size() % 64, 0U) << "the last window is not full";
  std::vector<float> want;
  for (size_t begin = 0; begin < ids.size(); begin += 64) append(want, prompt_logprobs(*llm, cut(ids, begin, 64)));
  const auto report = evaluate_or_die(evaluation_of(text_of(120), 64, tiny("tiny-qwen2")));
  EXPECT_EQ(report.logprobs, want);
  EXPECT_EQ(report.text_tokens, std::ssize(ids));
  EXPECT_EQ(report.windows, (std::ssize(ids) + 63) / 64);
  EXPECT_EQ(std::ssize(report.logprobs), std::ssize(ids) - report.windows) << "all but the first of each window";
}

TEST(Evaluation, EachWindowBeginsAsTheTokenizerBeginsTexts) {
  const auto llm = load_or_die(tiny());
  const auto plain = *llm->tokenize(text_of(90), false), whole = *llm->tokenize(text_of(90), true);
  ASSERT_EQ(whole.size(), plain.size() + 1) << "a token in front";
  std::vector<float> want;
  for (size_t begin = 0; begin < plain.size(); begin += 39) {
    auto window = cut(plain, begin, 39);
    window.insert(window.begin(), whole.front());
    append(want, prompt_logprobs(*llm, window));
  }
  const auto report = evaluate_or_die(evaluation_of(text_of(90), 40));
  EXPECT_EQ(report.logprobs, want);
  EXPECT_EQ(report.logprobs.size(), plain.size()) << "every token of the text counts";
}

TEST(Evaluation, CountsTokensWithEnoughBeforeThem) {
  auto options = evaluation_of(text_of(100), 48, tiny("tiny-qwen2"));
  const auto all = evaluate_or_die(options);
  options.min_context = 24;
  const auto half = evaluate_or_die(options);
  std::vector<float> want;
  for (int64_t begin = 0, place = 0; begin < all.text_tokens; begin += 48) {
    const int64_t count = std::min<int64_t>(48, all.text_tokens - begin);
    for (int64_t at = 1; at < count; ++at, ++place) {
      if (at >= 24) want.push_back(all.logprobs.at(place));
    }
  }
  EXPECT_EQ(half.logprobs, want);
  EXPECT_LT(half.logprobs.size(), all.logprobs.size());
  // The first tokens of the text are the first of its figures.
  options.min_context = 1;
  options.max_tokens = 70;
  const auto some = evaluate_or_die(options);
  EXPECT_EQ(some.text_tokens, 70);
  EXPECT_EQ(some.logprobs, std::vector(all.logprobs.begin(), all.logprobs.begin() + 68));
}

TEST(Evaluation, StepsOfAnySizeGiveTheSame) {
  auto options = evaluation_of(text_of(80), 100, perturbed());
  options.reference = EvaluatedModel{tiny("tiny-qwen2"), {}};
  for (const int min_context : {1, 50}) {
    options.min_context = min_context;
    options.measured.engine.max_num_batched_tokens = 1024;
    const auto whole = evaluate_or_die(options);
    for (const int tokens : {1, 17, 50}) {
      options.measured.engine.max_num_batched_tokens = tokens;
      const auto parts = evaluate_or_die(options);
      EXPECT_EQ(parts.logprobs, whole.logprobs) << tokens;
      EXPECT_EQ(parts.reference->logprobs, whole.reference->logprobs) << tokens;
      EXPECT_EQ(parts.reference->divergences, whole.reference->divergences) << tokens;
      EXPECT_EQ(parts.reference->same_top, whole.reference->same_top) << tokens;
    }
  }
}

// Which tokens count is the same for both.
TEST(Evaluation, AReferenceCountsWhatTheModelCounts) {
  auto options = evaluation_of(text_of(100), 48);
  options.min_context = 24;
  options.measured.engine.max_num_batched_tokens = 20;
  options.reference = EvaluatedModel{tiny(), {}};
  const auto report = evaluate_or_die(options);
  EXPECT_EQ(report.reference->logprobs, report.logprobs);
  EXPECT_THAT(report.reference->divergences, ::testing::Each(0.0));
}

TEST(Evaluation, TheWholeContextIsAWindow) {
  const auto llm = load_or_die(tiny("tiny-qwen2"));
  const int context = llm->info().max_model_len;
  auto options = evaluation_of(text_of(context), context, tiny("tiny-qwen2"));
  options.max_tokens = context;
  EXPECT_EQ(std::ssize(evaluate_or_die(options).logprobs), context - 1);
  options.window_tokens = context + 1;
  EXPECT_THAT(evaluate(options).status().message(), HasSubstr(fmt::format("made for {} positions", context)));
  options.window_tokens = 0;
  EXPECT_EQ(evaluate_or_die(options).window_tokens, std::min(context, 512));
}

TEST(Evaluation, AModelIsNoDistanceFromItself) {
  auto options = evaluation_of(text_of(80), 64);
  options.reference = EvaluatedModel{tiny(), {}};
  const auto report = evaluate_or_die(options);
  ASSERT_TRUE(report.reference);
  EXPECT_EQ(report.reference->logprobs, report.logprobs);
  EXPECT_THAT(report.reference->divergences, ::testing::Each(0.0));
  EXPECT_EQ(report.reference->divergences.size(), report.logprobs.size());
  EXPECT_EQ(report.reference->same_top, std::ssize(report.logprobs));
  EXPECT_EQ(perplexity_ratio(report.logprobs, report.reference->logprobs).value, 1);
}

// All logits of the windows of a text, step by step.
std::vector<std::vector<float>> all_rows(const EngineOptions& engine, const std::vector<int32_t>& ids, int window) {
  auto rows_of = WindowEngine::load(engine, {}, window);
  CHORAL_CHECK(rows_of.ok(), rows_of.status().to_string());
  std::vector<std::vector<float>> all;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(window)) {
    const auto tokens = cut(ids, begin, static_cast<size_t>(window));
    CHORAL_CHECK((*rows_of)->begin(std::span(tokens).first(tokens.size() - 1)).ok(), "a window");
    for (size_t done = 0; done + 1 < tokens.size();) {
      const auto rows = (*rows_of)->next();
      CHORAL_CHECK(rows.ok(), rows.status().to_string());
      for (int64_t i = 0; i < rows->logits.rows; ++i, ++done) {
        const auto row = rows->logits.row_span(i);
        all.emplace_back(row.begin(), row.end());
      }
    }
  }
  return all;
}

std::vector<double> log_softmax(const std::vector<float>& logits) {
  double sum = 0;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(static_cast<double>(logit) - top - std::log(sum));
  return out;
}

TEST(Evaluation, ADistanceIsThePlainSum) {
  auto options = evaluation_of(text_of(60), 48, perturbed());
  options.reference = EvaluatedModel{tiny("tiny-qwen2"), {}};
  const auto report = evaluate_or_die(options);
  const auto& found = *report.reference;
  const auto ids = *load_or_die(tiny("tiny-qwen2"))->tokenize(options.text, false);
  const auto p_rows = all_rows(tiny("tiny-qwen2"), ids, 48), q_rows = all_rows(perturbed(), ids, 48);
  ASSERT_EQ(p_rows.size(), found.divergences.size());
  int64_t same = 0;
  for (size_t i = 0; i < p_rows.size(); ++i) {
    const auto p = log_softmax(p_rows[i]), q = log_softmax(q_rows[i]);
    double divergence = 0;
    for (size_t t = 0; t < p.size(); ++t) divergence += std::exp(p[t]) * (p[t] - q[t]);
    EXPECT_NEAR(found.divergences[i], divergence, 1e-12);  // some thousand terms of 1e-16
    EXPECT_GT(found.divergences[i], 0);
    same += int64_t{std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin()};
  }
  EXPECT_EQ(found.same_top, same);
  EXPECT_NE(found.logprobs, report.logprobs);
  // Each model by itself says the same.
  EXPECT_EQ(evaluate_or_die(evaluation_of(options.text, 48, perturbed())).logprobs, report.logprobs);
  EXPECT_EQ(evaluate_or_die(evaluation_of(options.text, 48, tiny("tiny-qwen2"))).logprobs, found.logprobs);
}

TEST(Evaluation, AnAdapterAnswersAsInARequest) {
  const testing::TempDir folder;
  const auto made = [&](const std::string& name, uint64_t seed) {
    StepTimerOptions options;
    options.engine = tiny();
    options.engine.kv_cache_bytes = 4 << 20;
    const auto timer = StepTimer::make(options);
    CHORAL_CHECK(timer.ok() && (*timer)->write_adapter(folder / name, 4, seed).ok(), "an adapter is written");
  };
  made("one", 1);
  made("two", 2);
  auto engine = tiny();
  engine.adapters = {{.name = "given", .path = folder / "one"}};
  engine.adapter_root = folder.path().string();
  const auto llm = load_or_die(engine);
  const auto whole = *llm->tokenize(text_of(30), true);
  auto options = evaluation_of(text_of(30), static_cast<int>(whole.size()), engine);
  const auto base = evaluate_or_die(options);
  const std::vector<std::vector<AdapterUse>> voices{{{"given", 1}}, {{"two", 1}}, {{"given", 2}, {"two", 0.5F}}};
  for (const auto& voice : voices) {
    options.measured.adapters = voice;
    const auto report = evaluate_or_die(options);
    EXPECT_EQ(report.logprobs, prompt_logprobs(*llm, whole, voice));
    EXPECT_NE(report.logprobs, base.logprobs);
  }
  options.measured.adapters = {{"twoo", 1}};
  EXPECT_THAT(evaluate(options).status().message(), HasSubstr("did you mean 'two'?"));
}

TEST(Evaluation, SavedLogitsAreAReference) {
  const testing::TempDir folder;
  const std::string path = folder / "float.logits";
  auto options = evaluation_of(text_of(60), 48, tiny("tiny-qwen2"));
  {
    std::ofstream file(path, std::ios::binary);
    options.save = [&](std::string_view piece) {
      file << piece;
      return Status();
    };
    evaluate_or_die(options);
  }
  options.save = {};
  options.saved_reference = path;
  const auto itself = evaluate_or_die(options);
  EXPECT_EQ(itself.reference->logprobs, itself.logprobs) << "exact";
  EXPECT_EQ(itself.reference->same_top, std::ssize(itself.logprobs)) << "exact";
  EXPECT_THAT(itself.reference->model, "tiny-qwen2");
  // Rounding moves each logit by 1/4096 at most: a distance of half the square of that, and a little of third order.
  EXPECT_THAT(itself.reference->divergences, ::testing::Each(::testing::Le(1.01 * 0.5 / 4096 / 4096)));

  options.measured.engine = perturbed();
  auto beside = options;
  beside.saved_reference.clear();
  beside.reference = EvaluatedModel{tiny("tiny-qwen2"), {}};
  const auto saved = evaluate_or_die(options), live = evaluate_or_die(beside);
  EXPECT_EQ(saved.reference->logprobs, live.reference->logprobs);
  EXPECT_EQ(saved.reference->same_top, live.reference->same_top);
  EXPECT_NEAR(mean_of(saved.reference->divergences).value, mean_of(live.reference->divergences).value, 1e-6);
  // A shorter piece of the same text is in the file too.
  options.max_tokens = 60;
  EXPECT_EQ(std::ssize(evaluate_or_die(options).logprobs), 58);
}

TEST(Evaluation, WhatCannotBeScoredIsRefused) {
  const auto refusal = [](const EvaluationOptions& options) { return evaluate(options).status(); };
  EXPECT_THAT(refusal(evaluation_of("", 32)).message(), HasSubstr("text.txt is empty"));
  EXPECT_THAT(refusal(evaluation_of("abc\xff", 32)).message(), HasSubstr("text.txt is not UTF-8 at byte 3"));
  EXPECT_THAT(refusal(evaluation_of("a", 32, tiny("tiny-qwen2"))).message(), HasSubstr("has 1 token, of which none counts"));
  EXPECT_THAT(refusal(evaluation_of("a b", 1)).message(), HasSubstr("--ctx-size 1: give 2 or more"));
  EXPECT_THAT(refusal(evaluation_of("a b", -3)).message(), HasSubstr("--ctx-size -3"));
  auto options = evaluation_of(text_of(20), 8);
  options.min_context = 8;
  EXPECT_THAT(refusal(options).message(), HasSubstr("lower --min-context"));
  options.min_context = 0;
  EXPECT_THAT(refusal(options).message(), HasSubstr("--min-context 0"));
  options = evaluation_of(text_of(20), 8);
  options.max_tokens = -1;
  EXPECT_THAT(refusal(options).message(), HasSubstr("--tokens -1"));
  options = evaluation_of(text_of(20), 8, tiny("no-such-model"));
  EXPECT_EQ(refusal(options).code(), Code::kNotFound);
  options = evaluation_of(text_of(20), 8);
  options.saved_reference = "/no/such/file";
  EXPECT_EQ(refusal(options).code(), Code::kNotFound);
  options.reference = EvaluatedModel{tiny(), {}};
  EXPECT_THAT(refusal(options).message(), HasSubstr("either"));
}

TEST(Evaluation, AReferenceReadsTheSameTokens) {
  auto options = evaluation_of(text_of(20), 16, tiny("tiny-qwen2"));
  options.reference = EvaluatedModel{tiny("tiny-llama3"), {}};
  const auto refused = evaluate(options).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("the reference: tiny-llama3 has"));
  options.reference->engine.model = "/no/such/model";
  EXPECT_THAT(evaluate(options).status().message(), HasSubstr("the reference"));
}

TEST(Evaluation, AnErrorOfWritingEndsIt) {
  auto options = evaluation_of(text_of(20), 16);
  int pieces = 0;
  options.save = [&](std::string_view) { return ++pieces == 2 ? resource_exhausted("no room") : Status(); };
  EXPECT_THAT(evaluate(options).status().message(), HasSubstr("no room"));
  EXPECT_EQ(pieces, 2);
}

TEST(Estimates, AreThoseOfTextbooks) {
  const std::vector<double> values{1, 2, 4, 9};
  EXPECT_EQ(mean_of(values).value, 4);
  EXPECT_DOUBLE_EQ(mean_of(values).error, std::sqrt((9 + 4 + 0 + 25) / 3.0 / 4));
  EXPECT_EQ(mean_of(std::vector<double>{5}).error, 0);
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 0.5), 3);
  EXPECT_EQ(quantile(values, 1), 9);
  EXPECT_DOUBLE_EQ(quantile(values, 0.75), 5.25);
  EXPECT_EQ(quantile({}, 0.5), 0);
  const std::vector<float> logprobs{-1, -2, -3}, other{-1.5F, -2.5F, -3.5F};
  EXPECT_DOUBLE_EQ(perplexity(logprobs).value, std::exp(2));
  EXPECT_DOUBLE_EQ(perplexity(logprobs).error, std::exp(2) * std::sqrt(1.0 / 3));
  EXPECT_DOUBLE_EQ(perplexity_ratio(other, logprobs).value, std::exp(0.5));
  EXPECT_EQ(perplexity_ratio(other, logprobs).error, 0) << "each token differs by the same";
}

}  // namespace
}  // namespace choral::tools
