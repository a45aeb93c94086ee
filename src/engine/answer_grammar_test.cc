// Answers that keep a grammar, over one whose words the test knows: what the mask allows and nothing else, ends where it ends, in
// any batch, over the worker's border and through preemption, and at no cost for rows without one.
#include "engine/answer_grammar.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/allocation_test.h"
#include "engine/bytes_executor_test.h"
#include "engine/language_grammar_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

AssembledEngine engine_of(const EngineOptions& options = tiny_options(),
                          const AssembledEngine::MakeExecutor& make_executor = AssembledEngine::one_worker) {
  return {options, make_executor, now_s, make_languages};
}

Completion only(AssembledEngine& engine, const Request& request) {
  const auto output = engine.generate({request}).front();
  EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  return output.completions.at(0);
}

TEST(AnswerGrammar, AnAnswerKeepsToItAndEndsWithIt) {
  auto engine = engine_of();
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const auto answer = only(engine, speaking("9 9", seed));
    expect_speaks({.least = 9, .most = 9}, answer);
    EXPECT_EQ(answer.token_ids.size(), 9U) << "no step is spent on its end";
    EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
    EXPECT_EQ(answer.stop_reason, "");
  }
}

TEST(AnswerGrammar, ItMayEndOnlyWhereItIsComplete) {
  auto engine = engine_of();
  auto request = speaking("5 30", 1);
  request.sampling.logit_bias = {{kEos, 100.0F}};
  const auto ended = only(engine, request);
  EXPECT_EQ(ended.token_ids.size(), 6U);
  EXPECT_EQ(ended.token_ids.back(), kEos);
  EXPECT_EQ(ended.finish_reason, FinishReason::kStop);
  request.sampling.min_tokens = 8;
  EXPECT_EQ(only(engine, request).token_ids.size(), 9U);
  request.sampling.ignore_eos = true;
  const auto whole = only(engine, request);
  EXPECT_EQ(whole.token_ids.size(), 30U);
  EXPECT_EQ(whole.finish_reason, FinishReason::kStop) << "the grammar ends it, whatever is ignored";
  expect_speaks({.least = 5, .most = 30}, whole);
}

TEST(AnswerGrammar, WhatMaxTokensCutsHasThatLength) {
  auto engine = engine_of();
  const auto cut = only(engine, speaking("20 20", 1, 8));
  EXPECT_EQ(cut.token_ids.size(), 8U);
  EXPECT_EQ(cut.finish_reason, FinishReason::kLength);
  EXPECT_EQ(only(engine, speaking("8 8", 1, 8)).finish_reason, FinishReason::kStop) << "complete with the last token";
}

TEST(AnswerGrammar, FailuresAreTheirRequestsAlone) {
  auto engine = engine_of();
  const auto good = only(engine, speaking("9 9", 3));
  const auto outputs = engine.generate({speaking("9 9", 3), speaking("9 9 4", 5), speaking("9 9 -1 3", 7)});
  EXPECT_TRUE(outputs[0].status.ok());
  EXPECT_EQ(outputs[0].completions[0].token_ids, good.token_ids);
  EXPECT_EQ(outputs[1].status.code(), Code::kInternal);
  EXPECT_THAT(outputs[1].status.message(), HasSubstr("grammar does not allow"));
  EXPECT_EQ(outputs[1].completions[0].token_ids.size(), 4U);
  EXPECT_EQ(outputs[2].status.code(), Code::kUnsupported);
  EXPECT_THAT(outputs[2].status.message(), HasSubstr("no token of this model"));
  EXPECT_EQ(outputs[2].completions[0].finish_reason, FinishReason::kError);
}

TEST(AnswerGrammar, BadOnesAreRefusedWithTheirField) {
  auto options = tiny_options();
  auto files = open_model_files(options);
  ASSERT_TRUE(files.ok());
  const RequestLimits limits{.vocab = 4096, .max_model_len = 512};
  auto reader = RequestReader::make(*files, limits, make_languages);
  ASSERT_TRUE(reader.ok());
  EXPECT_THAT((*reader)->read(speaking("?", 1)).status().message(), HasSubstr("structured_output: no language is called ?"));
  EXPECT_THAT((*reader)->read(speaking("5 9 -1 0", 1)).status().message(), HasSubstr("no answer"));
  EXPECT_TRUE((*reader)->read(speaking("5 9", 1)).ok());
  auto without = RequestReader::make(*files, limits, [](const text::Tokenizer&, std::vector<int32_t>) {
    return Result<std::unique_ptr<text::GrammarCompiler>>(unsupported("there is no library for it"));
  });
  ASSERT_TRUE(without.ok());
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT((*without)->read(speaking("5 9", 1)).status().message(), HasSubstr("structured_output: there is no library"));
  files->tokenizer = nullptr;
  auto wordless = RequestReader::make(*files, limits, make_languages);
  ASSERT_TRUE(wordless.ok());
  EXPECT_EQ((*wordless)->read(speaking("5 9", 1)).status().code(), Code::kUnsupported);
}

TEST(AnswerGrammar, EachCompletionHasItsOwnState) {
  auto engine = engine_of();
  auto request = speaking("4 12", 5);
  request.sampling.n = 4;
  request.sampling.temperature = 2;
  const auto output = engine.generate({request}).front();
  ASSERT_TRUE(output.status.ok()) << output.status.to_string();
  for (const auto& completion : output.completions) expect_speaks({.least = 4, .most = 12}, completion);
  EXPECT_NE(output.completions[0].token_ids, output.completions[1].token_ids);
}

std::vector<Request> some_with_and_some_without() {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 10; ++i) requests.push_back(speaking(i % 2 == 0 ? "" : i % 4 == 1 ? "25 30" : "3 30", i, 30));
  return requests;
}

TEST(AnswerGrammar, RowsAreTheSameBitsInAnyBatch) {
  auto options = tiny_options();
  options.enable_prefix_caching = false;
  auto engine = engine_of(options);
  const auto requests = some_with_and_some_without();
  const auto together = engine.generate(requests);
  const auto plain = load_or_die(options);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_bits(engine.generate({requests[i]}).front(), together[i]);
    if (i % 2 == 0) expect_same_bits(plain->generate({requests[i]}).front(), together[i]);
  }
}

TEST(AnswerGrammar, PassesTheBorderAndPreemptionKeepsItsState) {
  auto options = tiny_options();
  options.max_model_len = 96;
  auto roomy = engine_of(options);
  const auto requests = some_with_and_some_without();
  const auto want = roomy.generate(requests);
  {
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 6;
  }
  options.max_num_batched_tokens = 40;
  options.max_num_seqs = 8;
  auto tight = engine_of(options, over_bytes);
  const int64_t before = tokens_accepted;
  const auto got = tight.generate(requests);
  EXPECT_GT(tight.stats().preemptions, 0);
  int64_t spoken = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_bits(want[i], got[i]);
    const auto& ids = got[i].completions[0].token_ids;
    if (i % 2 == 1) spoken += std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id != kEos && id != kOtherEos; });
  }
  EXPECT_EQ(tokens_accepted - before, spoken) << "each token once";
}

// The compiler that an LLM brings, whose own grammars need no library.
TEST(AnswerGrammar, ChoicesAndJsonObjectsAreServedByAnyLlm) {
  const auto llm = load_or_die(tiny_options());
  std::vector<Request> requests;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    requests.push_back(speaking("", seed, 400));
    requests.back().structured_output = {.kind = StructuredOutput::Kind::kChoice, .choices = {"yes", "no", "yes, but not now"}};
    requests.push_back(speaking("", seed, 400));
    requests.back().structured_output = {.kind = StructuredOutput::Kind::kJsonObject};
    requests.back().sampling.logit_bias = {{llm->tokenize("}", false)->at(0), 6.0F}};
  }
  const auto outputs = llm->generate(requests);
  int objects = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    ASSERT_TRUE(outputs[i].status.ok()) << outputs[i].status.to_string();
    const auto& answer = outputs[i].completions[0];
    if (i % 2 == 0) {
      EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
      EXPECT_THAT(answer.text, ::testing::AnyOf("yes", "no", "yes, but not now"));
    } else if (answer.finish_reason == FinishReason::kStop) {
      EXPECT_TRUE(nlohmann::json::parse(answer.text, nullptr, false).is_object()) << answer.text;
      ++objects;
    }
  }
  EXPECT_GT(objects, 0) << "some end within their length";
}

// What it looks ahead with is there before the first step, and is no memory that others are kept waiting for.
TEST(AnswerGrammar, LookingAheadAllocatesNothing) {
  const LanguageGrammar language({.least = 30, .most = 40});
  auto grammar = AnswerGrammar::make(language, 4096, {kEos}, {});
  ASSERT_TRUE(grammar.ok());
  AnswerGrammar& answer = **grammar;
  const std::vector<int32_t> tokens{100, 150, 101, 151, 7};
  EXPECT_EQ(answer.look_ahead(tokens), 0) << "without room";
  const auto counted = choral::testing::count_allocations([&] {
    answer.make_room_ahead();
    EXPECT_EQ(answer.look_ahead(tokens), 4) << "7 is no word of it";
    for (const int32_t token : {100, 150}) EXPECT_TRUE(answer.accept(token).ok());
    EXPECT_EQ(answer.look_ahead(std::span(tokens).subspan(2)), 2);
  });
  EXPECT_EQ(counted.allocations, 0);
  EXPECT_TRUE(answer.allows(101));
  EXPECT_FALSE(answer.allows(151));
}

TEST(AnswerGrammar, SteadyStateAllocatesNothing) {
  auto engine = engine_of();
  std::vector<AdmittedRequest> admitted;
  std::vector<std::shared_ptr<Response>> responses;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = speaking(i % 2 == 0 ? "400 450" : "", i, 400);
    request.sampling.logprobs.reset();
    request.sampling.ignore_eos = true;
    admitted.push_back(engine.read(std::move(request)));
    responses.push_back(admitted.back().response);
  }
  ASSERT_TRUE(engine.core().add_requests(admitted).ok());
  expect_no_allocations(engine, 8);
}

}  // namespace
}  // namespace choral::engine
