#include "requests/speculative_config.h"

#include <gmock/gmock.h>

namespace choral::requests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Status fault_of(std::string_view json) { return read_speculative_config(json).status(); }

TEST(SpeculativeConfig, SaysHowManyTokensAreGuessed) {
  const auto config = read_speculative_config(
      R"({"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4,"prompt_lookup_min":2,"model":null})");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->most_guessed, 5);
  EXPECT_THAT(config->notes, ElementsAre(HasSubstr("prompt_lookup_max 4 changes nothing here (the longest match"),
                                         HasSubstr("prompt_lookup_min 2 changes nothing here (the longest match")));
  const auto named = read_speculative_config(R"({"model":"[ngram]"})");
  ASSERT_TRUE(named.ok()) << named.status().to_string();
  EXPECT_EQ(named->most_guessed, std::nullopt);
  EXPECT_THAT(named->notes, IsEmpty());
}

TEST(SpeculativeConfig, NamesADraftModel) {
  for (const char* json : {R"({"model":"a/b","num_speculative_tokens":3})", R"({"method":"draft_model","model":"a/b"})"}) {
    const auto config = read_speculative_config(json);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_EQ(config->draft_model, "a/b");
  }
  EXPECT_EQ(draft_model_of("[ngram]"), "");
}

TEST(SpeculativeConfig, RefusesOtherMethods) {
  EXPECT_EQ(fault_of(R"({"method":"eagle3","model":"a/b"})").code(), Code::kUnsupported);
  EXPECT_THAT(fault_of(R"({"method":"eagle3","model":"a/b"})").message(), HasSubstr("the method 'eagle3' is not served"));
  EXPECT_THAT(fault_of(R"({"model":"a","draft_tensor_parallel_size":1})").message(),
              HasSubstr("'draft_tensor_parallel_size' is not served"));
}

TEST(SpeculativeConfig, NothingIsReadInPart) {
  EXPECT_THAT(fault_of(R"({"num_speculative_token":5})").message(), HasSubstr("did you mean 'num_speculative_tokens'?"));
  for (const char* json : {"", "5", "ngram", R"({"method":)", R"({"method":3})", R"({"num_speculative_tokens":"many"})",
                           R"({"num_speculative_tokens":99999999999})", R"({"prompt_lookup_max":[4]})"}) {
    EXPECT_FALSE(fault_of(json).ok()) << json;
  }
}

}  // namespace
}  // namespace choral::requests
