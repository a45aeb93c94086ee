// Which pooling a model's files ask for, and vectors of length 1.
#include "engine/pooling.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "support/temp_dir.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

Result<Pooling> pooling_of(std::string_view config) {
  const testing::TempDir folder;
  folder.write("1_Pooling/config.json", config);
  CHORAL_TRY(const auto form, read_pooling(folder.path(), {}));
  return form.pooling;
}

TEST(Pooling, IsWhatTheFilesSay) {
  EXPECT_EQ(read_pooling(testing::TempDir().path(), {})->pooling, Pooling::kLast);
  EXPECT_EQ(*pooling_of(R"({"word_embedding_dimension": 64, "pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false})"),
            Pooling::kLast);
  EXPECT_EQ(*pooling_of(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false, "include_prompt": true})"),
            Pooling::kMean);
  EXPECT_EQ(*pooling_of(R"({"pooling_mode_cls_token": true, "pooling_mode_lasttoken": false})"), Pooling::kFirst);
  EXPECT_EQ(*pooling_of(R"({"pooling_mode_max_tokens": true})"), Pooling::kMax);
  EXPECT_EQ(*pooling_of("{}"), Pooling::kMean) << "as sentence-transformers reads it";
}

// As files have it since version 5 of sentence-transformers, which leaves the others out, or reads this one first.
TEST(Pooling, IsAWordInNewerFiles) {
  for (const auto& [name, pooling] : {std::pair("cls", Pooling::kFirst), std::pair("max", Pooling::kMax),
                                      std::pair("mean", Pooling::kMean), std::pair("lasttoken", Pooling::kLast)}) {
    EXPECT_EQ(*pooling_of(fmt::format(R"({{"embedding_dimension": 64, "pooling_mode": "{}"}})", name)), pooling);
    EXPECT_EQ(*pooling_of(fmt::format(R"({{"pooling_mode": ["{}"], "pooling_mode_mean_tokens": true}})", name)), pooling);
  }
  for (const char* mode : {R"("weightedmean")", R"(["mean", "max"])", "[]"}) {
    const auto refused = pooling_of(fmt::format(R"({{"pooling_mode": {}}})", mode));
    EXPECT_EQ(refused.status().code(), Code::kUnsupported) << mode;
    EXPECT_THAT(refused.status().message(), HasSubstr("config.json: pooling_mode is")) << mode;
  }
}

TEST(Pooling, OtherWaysAreRefusedByName) {
  for (const char* mode : {"weightedmean_tokens", "mean_sqrt_len_tokens"}) {
    const auto refused = pooling_of(std::string(R"({"pooling_mode_)") + mode + R"(": true})");
    EXPECT_EQ(refused.status().code(), Code::kUnsupported);
    EXPECT_THAT(refused.status().message(), HasSubstr(mode));
  }
  EXPECT_THAT(pooling_of(R"({"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": true})").status().message(),
              HasSubstr("pooling_mode_lasttoken and pooling_mode_mean_tokens"));
  EXPECT_EQ(pooling_of(R"({"pooling_mode_mean_tokens": 1})").status().code(), Code::kCorrupt);
  EXPECT_EQ(pooling_of("[").status().code(), Code::kCorrupt);
}

TEST(Pooling, VectorsAreCutWhereTheModelWasTrainedSo) {
  const auto config = [](std::string_view json) { return *io::ConfigMap::parse_json(json, "config.json"); };
  const testing::TempDir plain, embedder;
  embedder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_FALSE(read_pooling(plain.path(), config("{}"))->may_be_cut);
  EXPECT_TRUE(read_pooling(plain.path(), config(R"({"is_matryoshka": true})"))->may_be_cut);
  EXPECT_TRUE(read_pooling(embedder.path(), config("{}"))->may_be_cut);
  EXPECT_FALSE(read_pooling(embedder.path(), config(R"({"is_matryoshka": false})"))->may_be_cut);
  const auto form = read_pooling(plain.path(), config(R"({"matryoshka_dimensions": [8, 16]})"));
  EXPECT_TRUE(form->may_be_cut);
  EXPECT_EQ(form->dimensions, (std::vector<int64_t>{8, 16}));
}

TEST(Pooling, AGgufFileSaysItByNumber) {
  const auto of = [](const char* config) -> Result<Pooling> {
    CHORAL_TRY(const auto form, read_pooling("model.gguf", *io::ConfigMap::parse_json(config, "model.gguf")));
    return form.pooling;
  };
  EXPECT_EQ(*of("{}"), Pooling::kLast);
  EXPECT_EQ(*of(R"({"pooling_type": 1})"), Pooling::kMean);
  EXPECT_EQ(*of(R"({"pooling_type": 3})"), Pooling::kLast);
  EXPECT_EQ(*of(R"({"pooling_type": 2})"), Pooling::kFirst);
  for (const int other : {0, 4})
    EXPECT_THAT(of(fmt::format(R"({{"pooling_type": {}}})", other).c_str()).status().message(),
                HasSubstr(fmt::format("model.gguf: pooling_type is {}", other)));
}

TEST(Pooling, NormalizedHasLengthOne) {
  const std::vector<float> values = {3, 0, -4};
  EXPECT_EQ(*normalized(values), (std::vector<float>{0.6F, 0, -0.8F}));
  const std::vector<float> large = {3e38F, 3e38F};
  EXPECT_NEAR((*normalized(large))[0], std::sqrt(0.5), 1e-7);
  for (const float bad : {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> broken = {bad, 0};
    EXPECT_EQ(normalized(broken).status().code(), Code::kInternal);
  }
}

}  // namespace
}  // namespace choral::engine
