// Names that a catalogue leads to: where they lie now, and what becomes of them when it says something else.
#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class AdapterPlacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.adapter_places = places_;
    answers_ = load_or_die(tiny_options());
  }
  void place(std::map<std::string, std::string, std::less<>> folders) {
    places_->set(std::make_shared<AdapterPlaces::Folders>(std::move(folders)));
  }
  static RequestOutput answer(LLM& llm, const std::string& name) {
    return llm.generate({with_adapters(greedy_request(random_prompt(30, 9), 6), {{name}})}).front();
  }
  RequestOutput expected(uint64_t seed) {
    const std::string name = "seed-" + std::to_string(seed);
    if (!answers_->adapter(name)) {
      EXPECT_TRUE(answers_->load_adapter({name, known_files_.write(name, 4, seed)}).ok());
    }
    return answer(*answers_, name);
  }

  AdapterFiles files_, known_files_;
  const std::shared_ptr<AdapterPlaces> places_ = std::make_shared<AdapterPlaces>();
  EngineOptions options_ = tiny_options();
  std::unique_ptr<LLM> answers_;
};

TEST_F(AdapterPlacesTest, ANameIsWhereTheyLeadTo) {
  const std::string one = files_.write("content-1", 4, 1), two = files_.write("content-2", 4, 2);
  options_.adapter_root = files_.root().string();
  const auto llm = load_or_die(options_);
  expect_same_bits(answer(*llm, "content-1"), expected(1));  // no places yet: by the root
  place({{"sql", one}, {"poet", two}});
  expect_same_bits(answer(*llm, "sql"), expected(1));
  expect_same_bits(answer(*llm, "poet"), expected(2));
  EXPECT_EQ(answer(*llm, "content-2").status.code(), Code::kNotFound) << "what they do not name is served";
  EXPECT_EQ(answer(*llm, "content-1").status.code(), Code::kNotFound) << "what was found before stays";
  EXPECT_TRUE(llm->adapter("sql")->is_found);
  EXPECT_FALSE(llm->adapter("content-1").has_value());
}

TEST_F(AdapterPlacesTest, ANameGoesWhereItsPlaceGoes) {
  const std::string one = files_.write("content-1", 4, 1), two = files_.write("content-2", 4, 2);
  place({{"sql", one}});
  const auto llm = load_or_die(options_);
  expect_same_bits(answer(*llm, "sql"), expected(1));
  place({{"sql", two}});
  expect_same_bits(answer(*llm, "sql"), expected(2));
  EXPECT_EQ(llm->adapter("sql")->generation, 2);
  EXPECT_EQ(llm->adapter("sql")->path, two);
  place({{"sql", one}});
  expect_same_bits(answer(*llm, "sql"), expected(1));
  place({});
  EXPECT_EQ(answer(*llm, "sql").status.code(), Code::kNotFound);
  place({{"sql", two}});
  expect_same_bits(answer(*llm, "sql"), expected(2));
}

TEST_F(AdapterPlacesTest, APlaceThatCannotBeReadLeavesTheNameAsItWas) {
  const std::string one = files_.write("content-1", 4, 1), two = files_.write("content-2", 4, 2);
  place({{"sql", one}});
  const auto llm = load_or_die(options_);
  expect_same_bits(answer(*llm, "sql"), expected(1));
  fs::resize_file(fs::path(two) / "adapter_model.safetensors", 3000);
  place({{"sql", two}});
  expect_same_bits(answer(*llm, "sql"), expected(1));
  EXPECT_THAT(llm->adapter("sql")->error, HasSubstr("adapter_model.safetensors"));
  const std::string three = files_.write("content-3", 4, 3);
  place({{"sql", three}});
  expect_same_bits(answer(*llm, "sql"), expected(3));
  EXPECT_EQ(llm->adapter("sql")->error, "");
}

// The first place was never read: nothing of it stays.
TEST_F(AdapterPlacesTest, APlaceThatWasNeverReadIsForgotten) {
  const std::string two = files_.write("content-2", 4, 2);
  place({{"sql", (files_.root() / "none").string()}});
  const auto llm = load_or_die(options_);
  EXPECT_FALSE(answer(*llm, "sql").status.ok());
  place({{"sql", two}});
  expect_same_bits(answer(*llm, "sql"), expected(2));
}

TEST_F(AdapterPlacesTest, WhatWasLoadedByNameFollowsOnceItLiesThere) {
  const std::string one = files_.write("content-1", 4, 1), two = files_.write("content-2", 4, 2);
  place({});
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({.name = "sql", .path = one, .pinned = true}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "own", .path = one}).ok());
  place({{"sql", two}, {"own", two}});
  expect_same_bits(answer(*llm, "own"), expected(1));  // nobody said that it is the catalogue's
  place({{"sql", one}});
  expect_same_bits(answer(*llm, "sql"), expected(1));
  EXPECT_TRUE(llm->adapter("sql")->is_found);
  place({{"sql", two}});
  expect_same_bits(answer(*llm, "sql"), expected(2));
  EXPECT_TRUE(llm->adapter("sql")->pinned) << "the pin stays with the older content";
  place({});
  EXPECT_EQ(answer(*llm, "sql").status.code(), Code::kNotFound);
  expect_same_bits(answer(*llm, "own"), expected(1));
}

}  // namespace
}  // namespace choral::engine
