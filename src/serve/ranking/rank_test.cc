#include <gmock/gmock.h>

#include <cmath>

#include "serve/openai/json.h"
#include "serve/ranking/rank_form.h"

namespace choral::serve {
namespace {

using ::testing::ElementsAre;

RequestOutput vector_of(std::vector<float> values) {
  RequestOutput output;
  output.prompt_token_ids = {1, 2, 3};
  output.embedding = std::move(values);
  return output;
}

RequestOutput answer_of(double yes, double no) {
  RequestOutput output;
  output.prompt_token_ids = {1, 2, 3, 4};
  Completion& completion = output.completions.emplace_back();
  completion.token_ids = {7};
  completion.logprobs.push_back(
      {.chosen = {7, -0.1f}, .top = {{1, static_cast<float>(std::log(yes))}, {2, static_cast<float>(std::log(no))}}});
  return output;
}

RerankCall rerank_of(std::vector<std::string> documents) {
  RerankCall call;
  call.left = {"q"};
  call.right = std::move(documents);
  return call;
}

Json answered(AnswerForm& form, const std::vector<RequestOutput>& outputs) {
  std::string text;
  const auto whole = form.whole(outputs);
  while (whole->write(1 << 20, text)) {
  }
  return Json::parse(text);
}

const AnswerHead kHead{.id = "rerank-1", .model = "m", .created_unix_s = 5, .system_fingerprint = "fp"};

TEST(PairScores, AreCosinesOfVectors) {
  PairsCall call;
  call.left = {"a"};
  call.right = {"b", "c"};
  EXPECT_THAT(pair_scores(call, ScoreBy::kVectors, {vector_of({1, 0}), vector_of({0.6f, 0.8f}), vector_of({-1, 0})}),
              ElementsAre(testing::DoubleNear(0.6, 1e-6), testing::DoubleNear(-1, 1e-6)));
  call.left = {"a", "b"};
  EXPECT_THAT(pair_scores(call, ScoreBy::kVectors, {vector_of({1, 0}), vector_of({0, 1}), vector_of({1, 0}), vector_of({0, 1})}),
              ElementsAre(1, 1));
}

TEST(PairScores, AreSharesOfYes) {
  PairsCall call;
  call.left = {"a"};
  call.right = {"b", "c"};
  EXPECT_THAT(pair_scores(call, ScoreBy::kYesNo, {answer_of(0.6, 0.2), answer_of(0.1, 0.1)}),
              ElementsAre(testing::DoubleNear(0.75, 1e-6), testing::DoubleNear(0.5, 1e-6)));
}

TEST(RerankForm, OrdersBestFirst) {
  const std::vector<RequestOutput> outputs{vector_of({1, 0}), vector_of({0, 1}), vector_of({1, 0}), vector_of({0, 1})};
  RerankCall call = rerank_of({"x", "y", "z"});
  const Json got = answered(*make_rerank_form(kHead, call, ScoreBy::kVectors), outputs);
  EXPECT_EQ(got["results"][0], (Json{{"index", 1}, {"relevance_score", 1.0}, {"document", {{"text", "y"}}}}));
  EXPECT_EQ(got["results"][1]["index"], 0) << "equal ones in their order";
  EXPECT_EQ(got["results"][2]["index"], 2);
  EXPECT_EQ(got["usage"], (Json{{"prompt_tokens", 12}, {"total_tokens", 12}}));
  call.top_n = 1;
  call.return_documents = false;
  const Json one = answered(*make_rerank_form(kHead, call, ScoreBy::kVectors), outputs);
  EXPECT_EQ(one["results"].dump(), R"([{"index":1,"relevance_score":1.0}])");
  call.is_plain_list = true;
  EXPECT_EQ(answered(*make_rerank_form(kHead, call, ScoreBy::kVectors), outputs).dump(), R"([{"index":1,"score":1.0}])");
}

TEST(ReadRerankCall, TakesBothForms) {
  BodyNotes notes;
  const auto jinas = read_rerank_call(R"({"query":"q","documents":["a",{"text":"b"}],"top_n":5})", notes);
  ASSERT_TRUE(jinas.ok()) << jinas.status().to_string();
  EXPECT_THAT(jinas->right, ElementsAre("a", "b"));
  EXPECT_TRUE(jinas->return_documents);
  const auto plain = read_rerank_call(R"({"query":"q","texts":["a"]})", notes);
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_TRUE(plain->is_plain_list);
  EXPECT_FALSE(plain->return_documents);
  for (const char* bad :
       {R"({"query":"q"})", R"({"documents":["a"]})", R"({"query":"q","documents":[]})", R"({"query":"q","documents":[1]})",
        R"({"query":"q","documents":"a"})", R"({"query":"q","documents":["a"],"top_n":0})",
        R"({"query":"q","documents":[{"image":"x"}]})", R"({"query":"q","documents":["a"],"max_tokens_per_doc":5})"})
    EXPECT_FALSE(read_rerank_call(bad, notes).ok()) << bad;
}

TEST(ReadScoreCall, PairsAreOneToManyOrAsManyOnBothSides) {
  BodyNotes notes;
  EXPECT_EQ(read_score_call(R"({"text_1":"a","text_2":["b","c"]})", notes)->pairs(), 2u);
  EXPECT_EQ(read_score_call(R"({"text_1":["a","x"],"text_2":["b","c"]})", notes)->pairs(), 2u);
  EXPECT_EQ(read_score_call(R"({"text_1":["a","x","y"],"text_2":"c"})", notes)->right_of(2), "c");
  EXPECT_FALSE(read_score_call(R"({"text_1":["a","x","y"],"text_2":["b","c"]})", notes).ok());
  EXPECT_EQ(notes.param, "text_2");
  EXPECT_FALSE(read_score_call(R"({"text_1":"a"})", notes).ok());
}

}  // namespace
}  // namespace choral::serve
