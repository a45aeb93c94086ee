// Models that give embeddings or classes answer as transformers and PEFT do; alone as in company. Made by make_pooled_models.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "choral/llm.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"

namespace choral::golden {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kPooled = fs::path(testing::test_data()) / "pooled";

std::vector<Json> goldens_of(std::string_view model) {
  std::vector<Json> found;
  std::ifstream file(kPooled / "goldens.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json golden = Json::parse(line);
    if (golden["model"] == model) found.push_back(std::move(golden));
  }
  return found;
}

std::unique_ptr<LLM> load(const std::string& model) {
  const fs::path folder = kPooled / model;
  auto llm = LLM::load({.model = folder.string(), .threads = 2, .adapters = {{"it", (folder / "adapter").string()}}});
  EXPECT_TRUE(llm.ok()) << llm.status().to_string();
  if (!llm.ok()) return nullptr;
  EXPECT_EQ((*llm)->info().kv_cache_dtype, "float32");
  return std::move(*llm);
}

Request request_of(const Json& golden) {
  Request request;
  request.prompt_token_ids = golden["prompt_token_ids"].get<std::vector<int32_t>>();
  if (golden.contains("adapter")) request.adapters.push_back({"it"});
  request.embedding = golden.contains("embedding");
  request.classes = !request.embedding;
  return request;
}

const std::vector<float>& values_of(const RequestOutput& output) {
  return output.embedding.empty() ? output.classes : output.embedding;
}

class PooledTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PooledTest, AnswersAsTransformersAndPeft) {
  const auto llm = load(GetParam());
  ASSERT_NE(llm, nullptr);
  const auto goldens = goldens_of(GetParam());
  ASSERT_EQ(goldens.size(), 8U);
  std::vector<Request> requests;
  for (const Json& golden : goldens) requests.push_back(request_of(golden));
  const auto together = llm->generate(requests);
  for (size_t i = 0; i < goldens.size(); ++i) {
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.to_string();
    EXPECT_TRUE(together[i].completions.empty());
    const auto& wanted = goldens[i][requests[i].classes ? "classes" : "embedding"];
    const auto& got = values_of(together[i]);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t j = 0; j < got.size(); ++j) EXPECT_NEAR(got[j], wanted[j].get<double>(), 1e-4) << i << ' ' << j;
    EXPECT_EQ(values_of(llm->generate({requests[i]}).front()), got) << "alone";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PooledTest, ::testing::Values("embedder", "last_token", "classes", "reranker"),
                         [](const auto& one) { return std::string(one.param); });

// The embedder by another of its folder's files, in the words of older versions of sentence-transformers and of newer ones.
TEST(Pooled, ByTheFirstTokenAndByMaxima) {
  for (const auto& [mode, word] : {std::pair("cls_token", "cls"), std::pair("max_tokens", "max")}) {
    for (const auto& config : {Json{{std::string("pooling_mode_") + mode, true}}, Json{{"pooling_mode", word}}}) {
      const testing::TempDir folder;
      fs::copy(kPooled / "embedder", folder.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
      folder.write("1_Pooling/config.json", config.dump());
      auto llm = LLM::load({.model = folder.path().string(), .threads = 2});
      ASSERT_TRUE(llm.ok()) << llm.status().to_string();
      const auto goldens = goldens_of(std::string("embedder ") + mode);
      ASSERT_EQ(goldens.size(), 3U);
      std::vector<Request> requests;
      for (const Json& golden : goldens) requests.push_back(request_of(golden));
      const auto together = (*llm)->generate(requests);
      for (size_t i = 0; i < goldens.size(); ++i) {
        ASSERT_TRUE(together[i].status.ok()) << together[i].status.to_string();
        const auto& got = together[i].embedding;
        ASSERT_EQ(got.size(), goldens[i]["embedding"].size());
        for (size_t j = 0; j < got.size(); ++j) EXPECT_NEAR(got[j], goldens[i]["embedding"][j].get<double>(), 1e-4) << mode << i;
        EXPECT_EQ((*llm)->generate({requests[i]}).front().embedding, got) << "alone";
      }
    }
  }
}

// What lies in the prefix cache is computed anew where each token counts.
TEST(Pooled, TheFirstTokenIsNotLeftToTheCache) {
  const testing::TempDir folder;
  fs::copy(kPooled / "last_token", folder.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  folder.write("1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  auto llm = LLM::load({.model = folder.path().string(), .threads = 2, .max_num_seqs = 8, .max_num_batched_tokens = 48});
  ASSERT_TRUE(llm.ok()) << llm.status().to_string();
  const auto goldens = goldens_of("last_token");
  const auto asked = request_of(goldens[3]);
  ASSERT_EQ(asked.prompt_token_ids.size(), 150U);
  Request first = asked;
  first.prompt_token_ids.resize(1);
  const auto wanted = (*llm)->generate({first}).front().embedding;
  for (int time = 0; time < 2; ++time) {
    const auto output = (*llm)->generate({asked}).front();
    EXPECT_EQ(output.embedding, wanted) << "this model's first token sees no other";
    EXPECT_EQ(output.cached_tokens, 0);
  }
}

TEST(Pooled, WhatAModelHasNotIsRefusedByName) {
  const auto says = [](LLM& llm, const Request& request) { return llm.generate({request}).front().status.message(); };
  const Request text{.prompt_token_ids = {1, 2, 3}}, vector{.prompt_token_ids = {1, 2, 3}, .embedding = true},
      classes{.prompt_token_ids = {1, 2, 3}, .classes = true};
  const auto embedder = load("embedder"), classifier = load("classes");
  ASSERT_TRUE(embedder && classifier);
  EXPECT_THAT(says(*embedder, text), HasSubstr("gives no text"));
  EXPECT_THAT(says(*embedder, classes), HasSubstr("no head of classes"));
  EXPECT_THAT(says(*classifier, text), HasSubstr("a head of 3 classes"));
  EXPECT_TRUE(classifier->generate({vector}).front().status.ok());
  EXPECT_THAT(classifier->info().class_labels, ::testing::ElementsAre("bad", "so-so", "good"));
  EXPECT_THAT(load("reranker")->info().class_labels, ::testing::ElementsAre("LABEL_0"));
}

TEST(Pooled, VectorsAreCutAndHaveLengthOneAgain) {
  const auto llm = load("embedder");
  ASSERT_NE(llm, nullptr);
  Request request = request_of(goldens_of("embedder").back());
  const auto whole = llm->generate({request}).front().embedding;
  request.embedding_dimensions = 5;
  const auto cut = llm->generate({request}).front().embedding;
  ASSERT_EQ(cut.size(), 5U);
  double squares = 0;
  for (const float value : cut) squares += double{value} * double{value};
  EXPECT_NEAR(squares, 1, 1e-6);
  for (size_t i = 0; i < cut.size(); ++i) EXPECT_NEAR(cut[i] / cut[0], whole[i] / whole[0], 1e-5);
  request.embedding_dimensions = 25;
  EXPECT_THAT(llm->generate({request}).front().status.message(), HasSubstr("1 to 24"));
}

// Its keys and values depend on what comes after them.
TEST(Pooled, ATextThatIsSeenWholeIsComputedInOneStep) {
  const fs::path folder = kPooled / "embedder";
  auto llm = LLM::load({.model = folder.string(), .threads = 2, .max_num_seqs = 8, .max_num_batched_tokens = 48});
  ASSERT_TRUE(llm.ok()) << llm.status().to_string();
  EXPECT_EQ((*llm)->info().max_model_len, 48);
  EXPECT_THAT((*llm)->info().notes, ::testing::Contains(HasSubstr("in one step")));
  const auto goldens = goldens_of("embedder");
  const auto asked = request_of(goldens[2]);
  ASSERT_EQ(asked.prompt_token_ids.size(), 40U);
  const auto outputs = (*llm)->generate(std::vector<Request>(4, asked));
  for (const auto& output : outputs) {
    EXPECT_EQ(output.embedding, outputs.front().embedding);
    EXPECT_EQ(output.cached_tokens, 0);
  }
  EXPECT_NEAR(outputs.front().embedding.at(3), goldens[2]["embedding"][3].get<double>(), 1e-4);
}

}  // namespace
}  // namespace choral::golden
