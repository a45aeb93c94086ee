// Adapters that bring tokens of their own, as requests see them: which ids there are, sampling over them, their text. The numbers
// are held against a model that has the rows by tests/golden/kinds_test.cc.
#include <gmock/gmock.h>

#include <cmath>

#include "engine/adapters/adapter_files_test.h"
#include "engine/allocation_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

constexpr int32_t kVocab = 4096, kOwn = 7, kFirst = kVocab, kLast = kVocab + kOwn - 1;

// Two tokens with rows, one of them special; one in a row of the base that its tokenizer leaves free.
constexpr char kTokens[] = R"({"added_tokens_decoder":{"4096":{"content":"<greek>","special":false},
    "4097":{"content":"<|own|>","special":true},"4050":{"content":"<spare>","special":false}}})";

class OwnTokensTest : public ::testing::Test {
 protected:
  std::unique_ptr<LLM> load() {
    EngineOptions options = tiny_options();
    options.adapter_root = files_.root().string();
    return load_or_die(options);
  }
  static Request named(const std::string& adapter, std::vector<int32_t> prompt = {5, 6, 7}) {
    auto request = greedy_request(std::move(prompt), 4);
    if (!adapter.empty()) request.adapters = {{adapter}};
    return request;
  }
  static RequestOutput answer(LLM& llm, const Request& request) { return llm.generate({request}).front(); }
  static std::string refusal(LLM& llm, const Request& request) { return answer(llm, request).status.message(); }
  static Request with_text(const std::string& adapter, std::string text) {
    auto request = named(adapter);
    request.prompt_token_ids.clear();
    request.prompt = std::move(text);
    return request;
  }

  AdapterFiles files_;
};

TEST_F(OwnTokensTest, ExistForRequestsOfTheirAdapterOnly) {
  files_.write_own_tokens("own", kOwn);
  files_.write("plain", 4, 1);
  const auto llm = load();
  for (int again = 0; again < 2; ++again) {  // before the files are read, and after
    EXPECT_TRUE(answer(*llm, named("own", {5, kVocab + kOwn - 1})).status.ok());
    EXPECT_THAT(refusal(*llm, named("own", {5, kVocab + kOwn})), HasSubstr("ids 0 to 4102"));
    EXPECT_THAT(refusal(*llm, named("plain", {5, kVocab})), HasSubstr("ids 0 to 4095"));
    EXPECT_THAT(refusal(*llm, named("", {5, kVocab})), HasSubstr("holds 4096; the model has ids 0 to 4095"));
    auto stopped = named("plain");
    stopped.sampling.stop_token_ids = {kVocab};
    EXPECT_THAT(refusal(*llm, stopped), HasSubstr("ids 0 to 4095"));
    EXPECT_EQ(answer(*llm, stopped).status.code(), Code::kInvalidArgument);
  }
  const auto list = llm->adapters();
  EXPECT_EQ(list[0].own_tokens, kOwn);
  EXPECT_EQ(list[1].own_tokens, 0);
}

TEST_F(OwnTokensTest, AreInTheVocabularyOfTheirAdapterOnly) {
  files_.write_own_tokens("own", kOwn, kTokens);
  files_.write("plain", 4, 1);
  const auto llm = load();
  const std::string text = "a <greek>";
  const auto base = *llm->vocabulary({}), plain = *llm->vocabulary({{"plain"}}), own = *llm->vocabulary({{"own"}});
  EXPECT_EQ(*base->tokenize(text, true), *llm->tokenize(text));
  EXPECT_EQ(*plain->tokenize(text, true), *llm->tokenize(text));
  const auto ids = *own->tokenize(text, true);
  EXPECT_THAT(ids, Contains(kFirst));
  EXPECT_EQ(ids.size(), own->tokenize("a ", true)->size() + 1);
  EXPECT_EQ(own->detokenize({kFirst}), "<greek>");
  EXPECT_EQ(own->token_text(kFirst), "<greek>");
  EXPECT_EQ(base->detokenize({kFirst}), "");
  EXPECT_EQ(base->size(), kVocab);
  EXPECT_GT(own->size(), kLast);
  EXPECT_EQ(own->tokenize(text, true, 1).status().code(), Code::kTooLarge);
  EXPECT_EQ(llm->vocabulary({{"nobody"}}).status().code(), Code::kNotFound);
  for (const auto& adapter : llm->adapters()) EXPECT_EQ(adapter.requests, 0) << "looking is no use";
}

TEST_F(OwnTokensTest, AreSampledLikeAnyOther) {
  files_.write_own_tokens("own", kOwn);
  const auto llm = load();
  const auto tokens_of = [&](auto change) {
    auto request = named("own");
    change(request.sampling);
    const auto output = answer(*llm, request);
    EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    return output.completions.at(0);
  };
  EXPECT_THAT(tokens_of([](auto& s) { s.logit_bias = {{kLast, 100}}; }).token_ids, Each(kLast));
  EXPECT_THAT(tokens_of([](auto& s) { s.allowed_token_ids = {kFirst}; }).token_ids, Each(kFirst));
  EXPECT_THAT(tokens_of([](auto& s) {
                s.allowed_token_ids = {kFirst, kLast}, s.presence_penalty = 2, s.logit_bias = {{kFirst, 1}};
              }).token_ids,
              AllOf(Contains(kFirst), Each(::testing::AnyOf(kFirst, kLast))));
  const auto drawn = [](auto& s) { s.temperature = 1, s.top_k = 3, s.top_p = 0.9F, s.seed = 3, s.logit_bias = {{kFirst, 50}}; };
  EXPECT_THAT(tokens_of(drawn).token_ids, Each(kFirst));
  const auto stopped = tokens_of([](auto& s) { s.logit_bias = {{kLast, 100}}, s.stop_token_ids = {kLast}; });
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.stop_reason, "4102");
  const auto later = tokens_of([](auto& s) { s.logit_bias = {{kLast, 100}}, s.stop_token_ids = {kLast}, s.min_tokens = 2; });
  ASSERT_EQ(later.token_ids.size(), 3u);
  EXPECT_THAT(later.token_ids, AllOf(Contains(Lt(kLast)), Contains(kLast)));

  auto request = named("own", {5, kFirst, 6, kLast});
  request.sampling.prompt_logprobs = 1;
  const auto output = answer(*llm, request);
  ASSERT_EQ(output.prompt_logprobs.size(), 3u);
  for (const auto& position : output.prompt_logprobs) EXPECT_TRUE(std::isfinite(position.chosen.logprob));
  EXPECT_EQ(output.prompt_logprobs[0].chosen.token_id, kFirst);
}

// Among others whose logits are narrower, again from the prefix cache, and in small steps.
TEST_F(OwnTokensTest, AnswersAreTheSameBitsInAnyCompany) {
  files_.write_own_tokens("own", kOwn);
  files_.write_own_tokens("wide", 40, "", 9);
  files_.write("plain", 8, 1);
  std::vector<Request> requests;
  for (const char* name : {"own", "", "wide", "plain", "own", "wide", ""}) {
    const std::string adapter = name;
    auto prompt = random_prompt(30 + static_cast<int>(requests.size()) * 9, static_cast<uint32_t>(requests.size()));
    if (adapter == "own" || adapter == "wide") prompt[7] = prompt.back() = kVocab + 1;
    requests.push_back(named(adapter, prompt));
    requests.back().sampling.max_tokens = 12;
  }
  const auto one_by_one = load(), together = load();
  for (int again = 0; again < 2; ++again) {
    const auto outputs = together->generate(requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_same_bits(outputs[i], answer(*one_by_one, requests[i]));
  }
  EXPECT_GT(together->stats().prefix_hit_tokens, 0);
}

TEST_F(OwnTokensTest, StepsAllocateNothing) {
  files_.write_own_tokens("own", kOwn);
  const auto llm = load();
  EXPECT_TRUE(answer(*llm, named("own")).status.ok());  // it is in memory
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (int i = 0; i < 4; ++i) {
    auto request = named(i % 2 == 0 ? "own" : "", random_prompt(9 + i, 3));
    request.sampling.max_tokens = 400;
    request.sampling.logprobs.reset();
    request.sampling.temperature = i < 2 ? 0.0F : 0.8F;
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
  }
  expect_no_allocations(*llm, 4);
}

TEST_F(OwnTokensTest, AreUsedAloneAndWithFactorOne) {
  files_.write_own_tokens("own", kOwn, kTokens);
  files_.write_own_tokens("other", kOwn, R"({"added_tokens_decoder":{"4096":{"content":"<tool>"}}})");
  const auto llm = load();
  for (const std::vector<AdapterUse>& uses : {std::vector<AdapterUse>{{"own", 0.5F}}, {{"other"}, {"other"}}}) {
    auto request = named("");
    request.adapters = uses;
    EXPECT_THAT(refusal(*llm, request), HasSubstr("brings tokens of its own, so it cannot be mixed or scaled"));
  }
  auto both = named("");
  both.adapters = {{"own"}, {"other"}};
  EXPECT_THAT(refusal(*llm, both), HasSubstr("adapters 'own' and 'other' both bring tokens of their own"));
}

TEST_F(OwnTokensTest, AreRefusedByTheFlag) {
  EngineOptions options = tiny_options();
  options.adapters = {{"own", files_.write_own_tokens("own", kOwn)}};
  for (const int most : {0, kOwn - 1}) {
    options.lora_extra_vocab_size = most;
    const Status status = LLM::load(options).status();
    EXPECT_EQ(status.code(), Code::kTooLarge);
    EXPECT_THAT(status.message(), HasSubstr("start with --lora-extra-vocab-size 7"));
  }
  options.lora_extra_vocab_size = kOwn;
  EXPECT_TRUE(LLM::load(options).ok());
}

TEST_F(OwnTokensTest, HaveTextInPromptsAndAnswersOfTheirAdapter) {
  files_.write_own_tokens("own", kOwn, kTokens);
  files_.write("plain", 4, 1);
  const auto llm = load();
  const auto prompt_of = [&](const std::string& adapter) {
    const auto output = answer(*llm, with_text(adapter, "one <greek> two<|own|><spare>"));
    EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    return output.prompt_token_ids;
  };
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(prompt_of("own"), AllOf(Contains(kVocab), Contains(kVocab + 1), Contains(4050)));
    for (const char* name : {"plain", ""}) EXPECT_THAT(prompt_of(name), AllOf(Each(Lt(kVocab)), Not(Contains(4050))));
  }
  auto chat = named("own");
  chat.prompt_token_ids.clear();
  chat.messages = {{"user", "say <greek>"}};
  EXPECT_THAT(answer(*llm, chat).prompt_token_ids, Contains(kVocab));

  auto request = named("own");
  request.sampling.max_tokens = 2;
  const auto text_of = [&](int32_t token, bool skip) {
    request.sampling.allowed_token_ids = {token};
    request.sampling.skip_special_tokens = skip;
    return answer(*llm, request).completions.at(0).text;
  };
  EXPECT_EQ(text_of(kVocab, true), "<greek><greek>");
  EXPECT_EQ(text_of(kVocab + 1, true), "");
  EXPECT_EQ(text_of(kVocab + 1, false), "<|own|><|own|>");
  EXPECT_EQ(text_of(kVocab + 2, false), "") << "a row without a token in the tokenizer";
  request.sampling.allowed_token_ids = {kVocab};
  request.sampling.stop = {"k><g"};
  EXPECT_EQ(answer(*llm, request).completions.at(0).text, "<gree");
  request.sampling.allowed_token_ids = {kVocab, kVocab + 3};
  request.sampling.bad_words = {"<greek>"};
  EXPECT_THAT(answer(*llm, request).completions.at(0).token_ids, Each(kVocab + 3));
}

TEST_F(OwnTokensTest, MayEndAnAnswer) {
  std::string config = kTokens;
  config.insert(1, R"("eos_token":"<|own|>",)");
  files_.write_own_tokens("own", kOwn, config);
  const auto llm = load();
  auto request = named("own");
  request.sampling.ignore_eos = false;
  request.sampling.logit_bias = {{kVocab + 1, 100}};
  EXPECT_EQ(answer(*llm, request).completions.at(0).finish_reason, FinishReason::kStop);
}

TEST_F(OwnTokensTest, ATokenizerOfAnotherVocabularyIsNotGuessedFrom) {
  constexpr char kOther[] = R"({"added_tokens_decoder":{"5":{"content":"<mine>"}}})";
  EngineOptions options = tiny_options();
  options.adapters = {{"own", files_.write_own_tokens("own", kOwn, kOther)}};
  EXPECT_THAT(LLM::load(options).status().message(), AllOf(HasSubstr("id 5 is the token"), HasSubstr("<mine>")));
  const auto path = files_.write("plain", 4, 1);
  std::ofstream(std::filesystem::path(path) / "tokenizer_config.json") << kOther;
  options.adapters = {{"plain", path}};
  const auto llm = load_or_die(options);
  EXPECT_THAT(llm->adapters().at(0).notes, ElementsAre(HasSubstr("the base's tokenizer is used")));
}

TEST_F(OwnTokensTest, ATokenWithoutARowIsPlainText) {
  const auto path = files_.write("plain", 4, 1);
  std::ofstream(std::filesystem::path(path) / "added_tokens.json") << R"({"[PAD]":4096})";
  const auto llm = load();
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(answer(*llm, with_text("plain", "a[PAD]b")).prompt_token_ids, Each(Lt(kVocab)));
  }
  EXPECT_THAT(llm->adapters().at(0).notes, ElementsAre(AllOf(HasSubstr("'[PAD]' (id 4096)"), HasSubstr("plain text"))));
}

}  // namespace
}  // namespace choral::engine
