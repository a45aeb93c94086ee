// Guessed tokens change nothing but the number of steps: answers with them and without are the same to the last bit, whatever
// else a request asks for and whoever it shares its steps with.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"
#include "engine/guessing_engine_test.h"
#include "engine/language_grammar_test.h"
#include "engine/speculation/draft_engine_test.h"

namespace choral::engine {
namespace {

// A prompt that says some things again and again, so that there is something to guess, for an answer that does likewise.
std::vector<int32_t> repeating_prompt(std::mt19937& random) {
  const auto up_to = [&random](uint32_t most) { return static_cast<uint32_t>(random() % (most + 1)); };
  const auto phrase = random_prompt(static_cast<int>(3 + up_to(20)), up_to(1000));
  std::vector<int32_t> ids = random_prompt(static_cast<int>(up_to(20)), up_to(1000));
  for (uint32_t i = 0; i < 2 + up_to(4); ++i) {
    ids.insert(ids.end(), phrase.begin(), phrase.end());
    const auto between = random_prompt(static_cast<int>(up_to(3)), up_to(1000));
    ids.insert(ids.end(), between.begin(), between.end());
  }
  return ids;
}

// Tiny models of random weights repeat themselves where they have few tokens to choose from: then some guesses come true.
Request drawn_request(std::mt19937& random, std::span<const std::string> adapters) {
  const auto up_to = [&random](uint32_t most) { return static_cast<uint32_t>(random() % (most + 1)); };
  auto request = greedy_request(repeating_prompt(random), static_cast<int>(10 + up_to(70)));
  auto& sampling = request.sampling;
  sampling.seed = random();
  sampling.ignore_eos = up_to(3) > 0;
  if (up_to(3) > 0) sampling.allowed_token_ids = random_prompt(static_cast<int>(2 + up_to(3)), up_to(1000));
  if (up_to(2) == 0) sampling.temperature = up_to(1) == 0 ? 0.05F : 0.9F;
  if (up_to(3) == 0) sampling.top_p = 0.8F;
  if (up_to(3) == 0) {
    sampling.xtc_probability = 0.5F;
    sampling.xtc_threshold = 0.1F;
  }
  if (up_to(4) == 0) sampling.n = 2;
  if (up_to(3) == 0) sampling.logprobs.reset();
  if (up_to(5) == 0) sampling.presence_penalty = 0.3F;
  if (up_to(5) == 0) sampling.repetition_penalty = 1.1F;
  if (up_to(5) == 0) sampling.dry_multiplier = 0.4F;
  if (up_to(5) == 0) sampling.min_tokens = static_cast<int>(up_to(9));
  if (up_to(5) == 0) sampling.stop_token_ids = random_prompt(40, up_to(1000));
  if (up_to(5) == 0) sampling.bad_words = {"a", " the"};
  if (up_to(5) == 0) sampling.prompt_logprobs = 1;
  if (!adapters.empty() && up_to(1) == 0) {
    request.adapters.push_back({adapters[up_to(static_cast<uint32_t>(adapters.size() - 1))]});
    if (up_to(3) == 0 && request.adapters[0].name != adapters[0]) request.adapters.push_back({adapters[0], 0.5F});
  }
  if (up_to(6) == 0) request.cache_salt = "salt";
  return request;
}

struct Case {
  const char* model;
  const char* kv_cache_dtype = "auto";
  int batched_tokens = 64;
  int blocks = 0;  // of the KV cache; 0: enough
  bool prefix_caching = true;
  const char* draft_model = nullptr;  // that guesses too
  int draft_blocks = 0;               // of its KV cache
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << ' ' << c.kv_cache_dtype << ' ' << c.blocks << ' ' << (c.draft_model == nullptr ? "alone" : c.draft_model);
}

class Speculation : public ::testing::TestWithParam<Case> {};

TEST_P(Speculation, TheSameBitsInFewerSteps) {
  const Case& c = GetParam();
  const AdapterFiles files(c.model);
  files.write("a", 4, 1);
  files.write("b", 8, 2);
  auto options = tiny_options(c.model);
  options.adapter_root = files.root().string();
  options.kv_cache_dtype = c.kv_cache_dtype;
  options.max_num_seqs = 5;
  options.max_num_batched_tokens = c.batched_tokens;
  options.max_model_len = 256;
  options.enable_prefix_caching = c.prefix_caching;
  if (c.blocks > 0) {
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / probe->stats().kv_blocks_total * c.blocks;
  }
  const std::vector<std::string> adapters{"a", "b"};
  std::mt19937 random(2);
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i) requests.push_back(drawn_request(random, adapters));

  const auto plain = load_or_die(options);
  auto guessing = c.draft_model == nullptr ? guessing_engine(options)
                                           : drafting_engine(options, {.model = c.draft_model, .kv_blocks = c.draft_blocks});
  const auto wanted = plain->generate(requests), got = guessing.generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(wanted[i], got[i]);
    ASSERT_EQ(wanted[i].completions.size(), got[i].completions.size());
    for (size_t n = 0; n < wanted[i].completions.size(); ++n) {
      EXPECT_EQ(wanted[i].completions[n].text, got[i].completions[n].text);
      EXPECT_EQ(wanted[i].completions[n].finish_reason, got[i].completions[n].finish_reason);
      EXPECT_EQ(wanted[i].completions[n].stop_reason, got[i].completions[n].stop_reason);
    }
  }
  const auto without = stats_at_rest(*plain), with = stats_at_rest(guessing);
  EXPECT_EQ(without.speculation.guessed, 0);
  EXPECT_GT(with.speculation.right, 0);
  EXPECT_GT(with.speculation.guessed, with.speculation.right) << "some were wrong, and did no harm";
  EXPECT_EQ(with.speculation.draft_guessed > 0, c.draft_model != nullptr);
  EXPECT_EQ(with.generated_tokens, without.generated_tokens);
  EXPECT_EQ(with.kv_blocks_free, with.kv_blocks_total);
  if (c.blocks > 0) {
    EXPECT_GT(with.preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Speculation,
                         ::testing::Values(Case{"tiny-llama3"}, Case{"tiny-llama3", "auto", 64, 14},
                                           Case{"tiny-llama3", "int8", 24}, Case{"tiny-llama3", "auto", 512, 0, false},
                                           Case{"tiny-gemma3"}, Case{"tiny-gemma3", "auto", 40, 20}, Case{"tiny-qwen3moe"},
                                           Case{"tiny-deepseek-v3"}, Case{"tiny-granite-h"},
                                           Case{"tiny-granite-h", "auto", 64, 0, false},
                                           Case{"tiny-granite-h", "auto", 64, 0, true, "tiny-llama3"}, Case{"tiny-qwen3-next"},
                                           Case{"tiny-qwen3-next", "auto", 40, 9},
                                           Case{"tiny-llama3", "auto", 64, 0, true, "tiny-llama3"},
                                           Case{"tiny-llama3", "auto", 64, 14, true, "tiny-llama3", 20},
                                           Case{"tiny-llama3", "auto", 64, 0, true, "tiny-gemma3"},
                                           Case{"tiny-gemma3", "auto", 40, 20, true, "tiny-gemma3", 30},
                                           Case{"tiny-qwen3moe", "int8", 64, 0, true, "tiny-qwen3"}));

void expect_same_answers(AssembledEngine& plain, AssembledEngine& guessing, const std::vector<Request>& requests) {
  const auto wanted = plain.generate(requests), got = guessing.generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(wanted[i].status.to_string(), got[i].status.to_string());
    if (wanted[i].status.ok()) expect_same_bits(wanted[i], got[i]);
    for (size_t n = 0; n < wanted[i].completions.size(); ++n) {
      EXPECT_EQ(wanted[i].completions[n].token_ids, got[i].completions.at(n).token_ids);
      EXPECT_EQ(wanted[i].completions[n].finish_reason, got[i].completions[n].finish_reason);
    }
  }
  const auto without = stats_at_rest(plain), with = stats_at_rest(guessing);
  EXPECT_EQ(without.speculation.guessed, 0);
  EXPECT_GT(with.speculation.right, std::ssize(requests));
  EXPECT_EQ(with.generated_tokens, without.generated_tokens);
  EXPECT_EQ(with.kv_blocks_free, with.kv_blocks_total);
}

// Masks are made behind each guess, with the engine's thread or beside it.
class SpeculationOfForms : public ::testing::TestWithParam<bool> {};

TEST_P(SpeculationOfForms, AnswersThatKeepAFormAreTheSame) {
  auto options = tiny_options();
  options.max_num_seqs = 5;
  options.max_num_batched_tokens = 64;
  const MaskLimits patient{.step_wait_s = 1, .allowance_s = 1, .first_credit_s = 100, .stuck_s = 100, .clock = no_time};
  AssembledEngine plain(options, AssembledEngine::one_worker, now_s, make_languages);
  auto guessing = guessing_engine(options, make_languages, patient);
  const std::vector<std::string> languages{"30 30 -1 -1 1", "20 40 -1 -1 2", "3 60 -1 -1 2", "40 60 -1 -1 7",
                                           "9 30 -1 -1 1",  "9 30 7 -1 2",   "9 30 -1 11 2", "30 30 -1 -1 2"};
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 40; ++i) {
    auto request = speaking(languages[i % languages.size()], i, static_cast<int>(8 + random() % 50), GetParam());
    if (i % 3 == 0) request.sampling.n = 2;
    if (i % 4 == 1) request.sampling.presence_penalty = 0.5F;
    if (i % 5 == 2) request.sampling.logit_bias = {{kEos, 3.0F}};
    if (i % 7 == 3) request.sampling.min_tokens = 7;
    if (i % 7 == 4) request.sampling.bad_words = {"a", " the"};
    if (i % 6 == 5) request.structured_output = {};
    requests.push_back(std::move(request));
  }
  expect_same_answers(plain, guessing, requests);  // a matcher a token off allows others
}

INSTANTIATE_TEST_SUITE_P(AtOnceAndBeside, SpeculationOfForms, ::testing::Bool());

// By the clock a mask takes so many seconds; a step takes a thousandth, and so do all its rows.
TEST(SpeculationOfForms, MasksThatTakeLongerThanStepsAreNotMadeForGuesses) {
  const auto guessed_where_a_mask_takes = [](double seconds) {
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 4; ++i) requests.push_back(speaking("200 300 -1 -1 1", i, 150));
    auto guessing = guessing_engine(tiny_options(), make_languages,
                                    {.clock = [seconds](pthread_t) { return seconds * static_cast<double>(masks_filled); }});
    for (const auto& output : guessing.generate(requests)) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    return stats_at_rest(guessing).speculation.guessed;
  };
  EXPECT_GT(guessed_where_a_mask_takes(1e-5), 300);
  EXPECT_LE(guessed_where_a_mask_takes(1e-2), 4 * 12) << "but until it is known";
}

TEST(SpeculationOfForms, JsonAndChoicesOfTheRealCompiler) {
  auto options = tiny_options();
  options.speculative = "off";
  AssembledEngine plain(options, AssembledEngine::one_worker);
  auto guessing = guessing_engine(options);
  std::vector<Request> requests;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    requests.push_back(speaking("", seed, 120));
    requests.back().structured_output = {.kind = StructuredOutput::Kind::kChoice,
                                         .choices = {"certainly", "certainly not", "perhaps, if nothing else is to be had"}};
    requests.push_back(speaking("", seed, 120));
    requests.back().structured_output = {
        .kind = StructuredOutput::Kind::kJsonSchema,
        .text =
            R"({"type":"object","properties":{"certainty":{"enum":["high","low"]},"count":{"type":"integer","maximum":99,"minimum":0},
                  "names":{"type":"array","items":{"type":"string","maxLength":5},"minItems":2,"maxItems":3}},
                  "required":["certainty","count","names"],"additionalProperties":false})"};
  }
  expect_same_answers(plain, guessing, requests);
}

TEST(SpeculationOfThoughts, TheirLimitIsKeptToTheToken) {
  auto options = tiny_options();
  options.speculative = "off";
  AssembledEngine plain(options, AssembledEngine::one_worker);
  auto guessing = guessing_engine(options);
  const std::string long_end = "\nThat is all that I thought of it.\n</think>\n\n";
  const auto marks = load_or_die(options)->tokenize("</think>" + long_end, false);
  ASSERT_TRUE(marks.ok());
  std::mt19937 random(8);
  std::vector<Request> requests;
  for (int i = 0; i < 60; ++i) {
    auto request = drawn_request(random, {});
    if (auto& allowed = request.sampling.allowed_token_ids; !allowed.empty())
      allowed.insert(allowed.end(), marks->begin(), marks->end());
    request.sampling.bad_words.clear();
    request.thought_limit = {.max_tokens = static_cast<int>(random() % 40),
                             .begins = {"<think>"},
                             .ends = {"</think>"},
                             .forced_end = i % 2 == 0 ? "</think>" : long_end,
                             .open = i % 3 > 0};
    requests.push_back(std::move(request));
  }
  expect_same_answers(plain, guessing, requests);
}

// Thoughts that come again share one budget (harmony's do). Once it is used up a mark that begins more is followed by the end at
// once, and all else is guessed as ever.
TEST(SpeculationOfThoughts, BehindAUsedUpBudgetGuessingGoesOn) {
  auto options = tiny_options();
  options.speculative = "off";
  const auto llm = load_or_die(options);
  AssembledEngine plain(options, AssembledEngine::one_worker);
  auto guessing = guessing_engine(options);
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 24; ++i) {
    auto request = greedy_request(random_prompt(20, i), 80);
    request.sampling.seed = i;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.5F;
    auto words = random_prompt(3, i + 100);
    const std::string mark = llm->detokenize({words[0]});
    const auto end = llm->tokenize("</t>", false);
    words.insert(words.end(), end->begin(), end->end());
    request.sampling.allowed_token_ids = std::move(words);
    request.thought_limit = {.max_tokens = static_cast<int>(random() % 6),
                             .begins = {i % 3 == 0 ? "<t>" : mark},
                             .ends = {"</t>"},
                             .forced_end = "</t>",
                             .again = true,
                             .open = true};
    requests.push_back(std::move(request));
  }
  expect_same_answers(plain, guessing, requests);
  EXPECT_GT(stats_at_rest(guessing).speculation.right, 8 * std::ssize(requests));
}

// A text of few different tokens, whose greedy answer repeats itself.
Request repeating_request(int max_tokens) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 50; ++i) prompt.push_back(100 + i % 7);
  auto request = greedy_request(prompt, max_tokens);
  request.sampling.allowed_token_ids = {100, 101, 102};
  return request;
}

TEST(SpeculationOfRequests, OneThatWantsNoGuessesHasNone) {
  auto engine = guessing_engine(tiny_options());
  const auto free = repeating_request(100);
  auto plain = free;
  plain.most_guessed = 0;
  const auto alone = engine.generate({plain}).front();
  EXPECT_EQ(stats_at_rest(engine).speculation.drafts, 0);
  const auto together = engine.generate({plain, free});
  EXPECT_EQ(together[0].completions[0].guesses.guessed, 0);
  const GuessCounts& guesses = together[1].completions[0].guesses;
  EXPECT_GT(guesses.right, 0);
  EXPECT_EQ(guesses.predicted, 0);
  EXPECT_EQ(stats_at_rest(engine).speculation.guessed, guesses.guessed);
  EXPECT_EQ(stats_at_rest(engine).speculation.right, guesses.right);
  expect_same_bits(alone, together[0]);
  expect_same_bits(alone, together[1]);
}

TEST(SpeculationOfRequests, NoMoreTokensAreGuessedThanAreWanted) {
  for (const auto [of_engine, of_request, wanted] : {std::array{3, -1, 3}, {3, 20, 3}, {12, 2, 2}, {2, 5, 2}, {12, -1, 12}}) {
    auto options = tiny_options();
    options.most_guessed = of_engine;
    auto engine = guessing_engine(options);
    auto request = repeating_request(150);
    request.most_guessed = of_request;
    ASSERT_TRUE(engine.generate({request}).front().status.ok());
    const auto stats = stats_at_rest(engine).speculation;
    EXPECT_EQ(engine.core().most_guessed(), of_engine);
    EXPECT_GT(stats.right_at[static_cast<size_t>(wanted) - 1], 0) << wanted;
    for (size_t i = static_cast<size_t>(wanted); i < stats.right_at.size(); ++i) EXPECT_EQ(stats.right_at[i], 0) << i;
    EXPECT_LE(stats.guessed, wanted * stats.drafts);
  }
}

// Who has just come waits for the others' guesses too. One that is not let in is no reason to guess less for long.
TEST(SpeculationOfRequests, BesideAPromptFewTokensAreGuessed) {
  constexpr int kNew = 20, kMost = 13;
  for (const int at_a_time : {4, 1}) {
    auto options = tiny_options();
    options.speculative = "ngram";
    options.max_num_seqs = at_a_time;
    const auto ticks = std::make_shared<std::atomic<int64_t>>(0);
    GatedEngine engine(options, [ticks] { return 1e-3 * static_cast<double>(++*ticks); });
    int asked = 1;
    const auto next_rows = [&] {
      engine.gate().allow(1);
      engine.gate().wait_for_asked(++asked);
      return engine.core().heartbeat().step_tokens;
    };
    engine.submit(repeating_request(400));
    engine.gate().wait_for_asked(asked);
    int in_a_row = 0;  // until it is not luck any more
    for (int i = 0; i < 30 && in_a_row < 5; ++i) in_a_row = next_rows() == kMost ? in_a_row + 1 : 0;
    ASSERT_EQ(in_a_row, 5);
    engine.submit(greedy_request(random_prompt(kNew, 3), 40));
    const int64_t read = at_a_time > 1 ? kNew : 0;
    const int64_t rows = next_rows() - read;
    EXPECT_GE(rows, 1);
    EXPECT_LE(rows, 1 + (1 + kNew) / 4);
    if (read == 0) {
      EXPECT_EQ(next_rows(), kMost);
    }
  }
}

TEST(SpeculationOfRequests, BelowNoneThereIsNothing) {
  const auto llm = load_or_die(tiny_options());
  auto request = repeating_request(2);
  request.most_guessed = -2;
  EXPECT_THAT(llm->generate({request}).front().status.message(), ::testing::HasSubstr("most_guessed is -2"));
}

// Its prompt says nothing that the answer repeats, so what comes true is the prediction's.
TEST(SpeculationOfRequests, APredictionIsLookedUpAndChangesNoBit) {
  auto engine = guessing_engine(tiny_options());
  const auto request = greedy_request(random_prompt(30, 5), 40);
  const auto wanted = engine.generate({request}).front();
  const auto& answer = wanted.completions[0];
  const auto of_prediction = [&](std::vector<int32_t> prediction) {
    AdmittedRequest admitted = engine.read(request);
    admitted.completions[0]->guesser.set_prediction(std::make_shared<const Prediction>(std::move(prediction)));
    EXPECT_TRUE(engine.core().add_requests({&admitted, 1}).ok());
    const auto got = admitted.response->wait();
    expect_same_bits(wanted, got);
    return got.completions[0].guesses;
  };
  const int64_t steps_before = stats_at_rest(engine).steps;
  const auto whole = of_prediction(answer.token_ids);
  EXPECT_GE(whole.predicted_right, 30) << "each token but the first, and one a step";
  EXPECT_LT(stats_at_rest(engine).steps - steps_before, 12);
  auto changed = answer.token_ids;
  changed[10] = changed[10] == 5 ? 6 : 5;
  const auto mostly = of_prediction(changed);
  EXPECT_GE(mostly.predicted_right, 20);
  EXPECT_GT(mostly.predicted, mostly.predicted_right) << "the changed one was guessed, and did no harm";
  EXPECT_EQ(of_prediction(random_prompt(40, 77)).predicted_right, 0);
}

// As texts: what a text says is tokenised once more, and no longer than the model.
TEST(SpeculationOfRequests, APredictionIsAText) {
  auto options = tiny_options();
  options.max_model_len = 128;
  auto engine = guessing_engine(options);
  Request request;
  request.prompt = "one two three";
  request.sampling = {.max_tokens = 40, .temperature = 0, .ignore_eos = true, .logprobs = 0};
  const auto wanted = engine.generate({request}).front();
  request.prediction = "the quick brown fox jumps over the lazy dog";
  expect_same_bits(wanted, engine.generate({request}).front());
  options.speculative = "ngram";
  const auto llm = load_or_die(options);
  for (int i = 0; i < 7; ++i) request.prediction += request.prediction;
  const Status refused = llm->generate({request}).front().status;
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("prediction: the text has more than 128 tokens; send less of it"));
  request.most_guessed = 0;
  EXPECT_TRUE(llm->generate({request}).front().status.ok()) << "without guesses it is not read";
  request.most_guessed = -1;
  options.speculative = "off";
  EXPECT_TRUE(load_or_die(options)->generate({request}).front().status.ok()) << "nor where there are none";
}

TEST(SpeculationOfRequests, AStreamsPiecesAddUpToItsGuesses) {
  auto engine = guessing_engine(tiny_options());
  AdmittedRequest admitted = engine.read(repeating_request(100));
  ASSERT_TRUE(engine.core().add_requests({&admitted, 1}).ok());
  GuessCounts sum;
  for (StreamEvent event; admitted.response->next(event);) sum += event.guesses;
  const auto whole = admitted.response->wait().completions[0].guesses;
  EXPECT_GT(whole.right, 0);
  EXPECT_EQ(sum.guessed, whole.guessed);
  EXPECT_EQ(sum.right, whole.right);
}

TEST(SpeculationOfModels, TheModelSaysHowManyTokens) {
  auto options = tiny_options();
  EXPECT_EQ(load_or_die(options)->info().most_guessed, 0) << "off";
  options.speculative = "ngram";
  EXPECT_EQ(load_or_die(options)->info().most_guessed, 12);
  options.most_guessed = 5;
  EXPECT_EQ(load_or_die(options)->info().most_guessed, 5);
}

class SpeculationOfTraffic : public ::testing::Test {
 protected:
  static EngineOptions options() {
    auto options = tiny_options();
    options.speculative = "traffic";
    return options;
  }
  // How many tokens of the answer were right guesses.
  int64_t right(const Request& request) {
    const auto before = stats_at_rest(engine_).speculation.right;
    const auto got = engine_.generate({request}).front();
    expect_same_bits(plain_->generate({request}).front(), got);
    return stats_at_rest(engine_).speculation.right - before;
  }
  // Nothing is said twice in it.
  static Request fresh(uint32_t seed = 5) {
    auto request = greedy_request(random_prompt(30, seed), 40);
    request.sampling.seed = 1;
    return request;
  }

  AssembledEngine engine_ = guessing_engine(options());
  std::unique_ptr<LLM> plain_ = load_or_die(tiny_options());
};

TEST_F(SpeculationOfTraffic, WhatWasSaidIsGuessedTheNextTime) {
  const int64_t first = right(fresh());
  EXPECT_GE(right(fresh()), 30);
  EXPECT_LT(first, 10);
  EXPECT_GT(stats_at_rest(engine_).speculation.traffic_bytes, 1000);
}

TEST_F(SpeculationOfTraffic, OthersAnswersAreNotGuessed) {
  auto one = fresh(), other = fresh(), shy = fresh(6);
  one.cache_salt = "one";
  other.cache_salt = "other";
  right(one);
  EXPECT_LT(right(other), 10);
  EXPECT_LT(right(fresh()), 10);
  EXPECT_GE(right(other), 30) << "its own";
  shy.most_guessed = 0;
  right(shy);
  shy.most_guessed = -1;
  EXPECT_LT(right(shy), 10) << "an answer without guesses is not kept";
}

// Adapters are groups of their own; activated ones too, although what they compute before their invocation is the base's.
TEST(SpeculationOfTrafficOfAdapters, OthersAnswersAreNotGuessed) {
  const std::vector<int32_t> invocation{1001, 1002, 1003};
  const AdapterFiles files;
  uint64_t seed = 0;
  for (const std::string name : {"a", "b", "x", "y"}) {
    const auto config_file = std::filesystem::path(files.write(name, 8, ++seed)) / "adapter_config.json";
    auto config = nlohmann::json::parse(std::ifstream(config_file));
    config["lora_alpha"] = 1e-9;  // all say what the base says, and nobody is to know
    if (name >= "x") config["alora_invocation_tokens"] = invocation;
    std::ofstream(config_file) << config;
  }
  auto options = tiny_options();
  options.speculative = "traffic";
  options.adapter_root = files.root().string();
  auto engine = guessing_engine(options);
  const auto right = [&](const std::string& adapter) {
    auto prompt = random_prompt(30, 5);
    prompt.insert(prompt.end(), invocation.begin(), invocation.end());
    auto request = greedy_request(prompt, 40);
    if (!adapter.empty()) request.adapters = {{adapter}};
    const auto before = stats_at_rest(engine).speculation.right;
    EXPECT_TRUE(engine.generate({request}).front().status.ok());
    return stats_at_rest(engine).speculation.right - before;
  };
  for (const std::string name : {"", "a", "b", "x", "y"}) EXPECT_LT(right(name), 10) << name;
  for (const std::string name : {"", "a", "b", "x", "y"}) EXPECT_GE(right(name), 30) << name << ": its own";
}

TEST_F(SpeculationOfTraffic, WithoutTheWordNothingIsKept) {
  auto engine = guessing_engine(tiny_options());
  engine.generate({fresh()});
  EXPECT_EQ(stats_at_rest(engine).speculation.traffic_bytes, 0);
  EXPECT_LT(engine.generate({fresh()}).front().completions[0].guesses.right, 10);
}

// What was computed of an answer is there for the next request, guessed or not.
TEST(SpeculationOfPrefixes, AnAnswerIsFoundInTheCacheLikeOneWithoutGuesses) {
  const auto cached_behind_an_answer = [](auto& engine) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 50; ++i) prompt.push_back(100 + i % 7);
    auto request = greedy_request(prompt, 150);
    request.sampling.allowed_token_ids = {100, 101, 102};
    const auto answer = engine.generate({request}).front();
    EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
    prompt.insert(prompt.end(), answer.completions[0].token_ids.begin(), answer.completions[0].token_ids.end());
    prompt.push_back(3);
    return engine.generate({greedy_request(prompt, 1)}).front().cached_tokens;
  };
  const auto plain = load_or_die(tiny_options());
  auto guessing = guessing_engine(tiny_options());
  const int cached = cached_behind_an_answer(*plain);
  EXPECT_GT(cached, 150);
  EXPECT_EQ(cached_behind_an_answer(guessing), cached);
  EXPECT_GT(stats_at_rest(guessing).speculation.right, 0);
}

}  // namespace
}  // namespace choral::engine
