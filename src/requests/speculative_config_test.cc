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

TEST(SpeculativeConfig, RefusesModelsThatGuess) {
  for (const char* json : {R"({"method":"eagle3","model":"a/b"})", R"({"model":"a/b","num_speculative_tokens":3})",
                           R"({"method":"ngram","draft_tensor_parallel_size":1})"}) {
    EXPECT_EQ(fault_of(json).code(), Code::kUnsupported) << json;
    EXPECT_THAT(fault_of(json).message(), HasSubstr("guessed from the text itself and not by a model"));
  }
  EXPECT_THAT(fault_of(R"({"model":"a/b"})").message(), HasSubstr("the draft model 'a/b' is not served"));
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
