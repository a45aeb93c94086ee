// Several contents of one name that can be asked for: NAME@GENERATION.
#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class GenerationsAliveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    answers_ = load_or_die(tiny_options());
    for (uint64_t seed = 1; seed <= 4; ++seed) paths_.push_back(files_.write("v" + std::to_string(seed), 4, seed));
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const std::string name = "v" + std::to_string(seed);
      EXPECT_TRUE(answers_->load_adapter({name, known_files_.write(name, 4, seed)}).ok());
    }
  }
  std::unique_ptr<LLM> engine(int alive) {
    options_.generations_alive = alive;
    return load_or_die(options_);
  }
  void load(LLM& llm, int version) {
    ASSERT_TRUE(llm.load_adapter({"policy", paths_.at(static_cast<size_t>(version) - 1)}, /*replace=*/true).ok());
  }
  static RequestOutput answer(LLM& llm, const std::string& name) {
    return llm.generate({with_adapters(greedy_request(random_prompt(30, 9), 6), {{name}})}).front();
  }
  RequestOutput expected(int version) { return answer(*answers_, "v" + std::to_string(version)); }
  static std::vector<int> earlier(const LLM& llm) {
    std::vector<int> all;
    const auto known = llm.adapter("policy");
    for (const auto& one : known->earlier) all.push_back(one.generation);
    return all;
  }

  AdapterFiles files_, known_files_;
  std::vector<std::string> paths_;
  EngineOptions options_ = tiny_options();
  std::unique_ptr<LLM> answers_;
};

TEST_F(GenerationsAliveTest, TheLastOnesAnswerBesideEachOther) {
  const auto llm = engine(3);
  for (int version = 1; version <= 4; ++version) load(*llm, version);
  EXPECT_THAT(earlier(*llm), ElementsAre(2, 3));
  expect_same_bits(answer(*llm, "policy"), expected(4));
  expect_same_bits(answer(*llm, "policy@4"), expected(4));
  expect_same_bits(answer(*llm, "policy@3"), expected(3));
  expect_same_bits(answer(*llm, "policy@2"), expected(2));
  EXPECT_EQ(answer(*llm, "policy@1").status.code(), Code::kNotFound);
  EXPECT_EQ(answer(*llm, "policy@5").status.code(), Code::kNotFound);
  const auto output = answer(*llm, "policy@3");
  ASSERT_EQ(output.adapters.size(), 1u);
  EXPECT_EQ(output.adapters.front().name, "policy");
  EXPECT_EQ(output.adapters.front().generation, 3);
  EXPECT_EQ(llm->adapters().size(), 1u) << "an earlier generation is listed as a name of its own";
  ASSERT_TRUE(llm->unload_adapter("policy").ok());
  EXPECT_EQ(answer(*llm, "policy@3").status.code(), Code::kNotFound) << "it outlives its name";
}

TEST_F(GenerationsAliveTest, OneIsTodaysRule) {
  const auto llm = engine(1);
  load(*llm, 1);
  load(*llm, 2);
  EXPECT_THAT(earlier(*llm), ElementsAre());
  EXPECT_EQ(answer(*llm, "policy@1").status.code(), Code::kNotFound);
  EXPECT_EQ(answer(*llm, "policy@2").status.code(), Code::kNotFound);
}

TEST_F(GenerationsAliveTest, FilesThatChangeLeaveTheirContentAsLongAsItIsInMemory) {
  const auto llm = engine(2);
  load(*llm, 1);
  expect_same_bits(answer(*llm, "policy"), expected(1));
  files_.write("v1", 4, 2);
  expect_same_bits(answer(*llm, "policy"), expected(2));
  EXPECT_THAT(earlier(*llm), ElementsAre(1));
  expect_same_bits(answer(*llm, "policy@1"), expected(1));
  expect_same_bits(answer(*llm, "policy@2"), expected(2));
}

// Nobody gets another content than the one that was asked for.
TEST_F(GenerationsAliveTest, AnEarlierOneThatIsLostIsAnError) {
  options_.max_cpu_loras = 1;
  const auto llm = engine(2);
  load(*llm, 1);
  load(*llm, 2);
  expect_same_bits(answer(*llm, "policy@1"), expected(1));
  expect_same_bits(answer(*llm, "policy"), expected(2));  // the other left memory
  expect_same_bits(answer(*llm, "policy@1"), expected(1));
  expect_same_bits(answer(*llm, "policy"), expected(2));
  files_.write("v1", 4, 3);
  EXPECT_THAT(answer(*llm, "policy@1").status.message(), HasSubstr("changed"));
  fs::remove_all(paths_[0]);
  EXPECT_FALSE(answer(*llm, "policy@1").status.ok());
  expect_same_bits(answer(*llm, "policy"), expected(2));
}

TEST_F(GenerationsAliveTest, ANameThatIsSpelledSoGoesFirst) {
  const auto llm = engine(2);
  load(*llm, 1);
  load(*llm, 2);
  ASSERT_TRUE(llm->load_adapter({"policy@1", paths_[2]}).ok());
  expect_same_bits(answer(*llm, "policy@1"), expected(3));
}

}  // namespace
}  // namespace choral::engine
