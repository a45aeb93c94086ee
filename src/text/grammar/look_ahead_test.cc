// What a matcher is asked for guesses: to go some tokens on and back again, and what probably comes next. Without the library;
// xgrammar_test.cc asks the same of its matchers.
#include "text/grammar/look_ahead_test.h"

#include <gmock/gmock.h>

#include "support/temp_dir.h"

namespace choral::text {
namespace {

using Kind = StructuredOutput::Kind;
using ::testing::StartsWith;

class LookAhead : public ::testing::Test {
 protected:
  std::shared_ptr<const Grammar> compile(const StructuredOutput& wanted) {
    auto grammar = compiler_->compile(wanted);
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    return *grammar;
  }
  // What is likely behind the text.
  std::string likely_behind(const Grammar& grammar, const std::string& text) {
    auto matcher = *grammar.matcher();
    for (const int32_t id : byte_tokens(*tokenizer_, text)) EXPECT_TRUE(matcher->accept(id)) << text;
    return likely_text(*matcher, *tokenizer_);
  }

  const testing::TempDir empty_;  // the library stays out
  std::shared_ptr<const Tokenizer> tokenizer_ = test_tokenizer("qwen2");
  std::unique_ptr<GrammarCompiler> compiler_ =
      *make_grammar_compiler(*tokenizer_, {tokenizer_->eos_id().value()}, {empty_.path(), {}});
};

const StructuredOutput kAnyObject{Kind::kJsonObject, "", {}};
const StructuredOutput kThreeChoices{Kind::kChoice, "", {"certainly", "certainly not", "perhaps, if nothing else is to be had"}};
const StructuredOutput kOrderedObject{
    Kind::kJsonSchema,
    R"({"type":"object","properties":{"name":{"type":"string"},"certainty":{"enum":["high","low"]},
                                "count":{"type":"integer"}},"required":["name","certainty","count"],"additionalProperties":false})",
    {}};

TEST_F(LookAhead, TheWayBackLeadsToTheSameMask) {
  for (const auto& wanted : {kAnyObject, kThreeChoices, kOrderedObject}) expect_way_back(*compile(wanted), *tokenizer_, 40);
}

TEST_F(LookAhead, WhatHasOneWayOnIsLikely) {
  const auto choices = compile(kThreeChoices);
  EXPECT_EQ(likely_behind(*choices, ""), "");
  EXPECT_EQ(likely_behind(*choices, "p"), "erhaps, if nothing else is to be had");
  EXPECT_EQ(likely_behind(*choices, "c"), "ertainly") << "there it may end";
  EXPECT_EQ(likely_behind(*choices, "certainly "), "not");
}

TEST_F(LookAhead, WhiteSpaceIsWhatItWasBefore) {
  const auto person = compile(kOrderedObject);
  EXPECT_EQ(likely_behind(*person, "{"), "\"name\": \"");
  EXPECT_EQ(likely_behind(*person, R"({"name": "Ada")"), ", \"certainty\": \"");
  EXPECT_EQ(likely_behind(*person, R"({"name":"A, B:  \"C\" {)"), "");
  EXPECT_EQ(likely_behind(*person, R"({"name":"A, B:  \"C\" {")"), ", \"certainty\":\"");
  EXPECT_EQ(likely_behind(*person, "{\n  \"name\": \"Ada\",\n  \"certainty\": \"h"), "igh\",\n  \"count\": ");
  EXPECT_EQ(likely_behind(*person, "{\n \"name\": \"Ada\",\n"), " \"certainty\": \"") << "what is there of it is not said twice";
}

TEST_F(LookAhead, NothingIsLikelyWhereAllMayCome) {
  const auto object = compile(kAnyObject);
  EXPECT_EQ(likely_behind(*object, ""), "{");
  EXPECT_EQ(likely_behind(*object, R"({"a)"), "");
  EXPECT_THAT(likely_behind(*object, R"({"a")"), StartsWith(":"));
  EXPECT_EQ(likely_behind(*object, R"({"a": t)"), "rue");
}

// Each token is the longest that fits.
TEST_F(LookAhead, TokensAreLong) {
  auto matcher = *compile(kOrderedObject)->matcher();
  EXPECT_TRUE(matcher->accept(byte_tokens(*tokenizer_, "{").front()));
  std::vector<int32_t> tokens(12);
  tokens.resize(static_cast<size_t>(matcher->likely(tokens)));
  EXPECT_LT(tokens.size(), 6U);
  std::vector<int32_t> two(2);
  EXPECT_EQ(matcher->likely(two), 2);
  EXPECT_EQ(two, std::vector(tokens.begin(), tokens.begin() + 2));
  EXPECT_EQ(matcher->likely({}), 0);
}

}  // namespace
}  // namespace choral::text
