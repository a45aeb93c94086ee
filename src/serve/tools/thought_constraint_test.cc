// Forms of answers behind thoughts, through the library of grammars (CHORAL_XGRAMMAR): what they let through and what not.
#include "serve/tools/thought_constraint.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "text/grammar/json_schema_check.h"
#include "text/grammar/sampled_answer_test.h"

namespace choral::serve {
namespace {

using OutputKind = StructuredOutput::Kind;

StructuredOutput output(OutputKind kind, std::string text, std::vector<std::string> choices = {}) {
  return {.kind = kind, .text = std::move(text), .choices = std::move(choices)};
}

const StructuredOutput& city_schema() {
  static const auto schema =
      output(OutputKind::kJsonSchema, R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})");
  return schema;
}

class ThoughtConstraint : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("CHORAL_XGRAMMAR")) GTEST_SKIP() << "CHORAL_XGRAMMAR names no folder with xgrammar";
    tokenizer_ = text::test_tokenizer("qwen2");
    text::GrammarOptions options;
    options.limits.max_compile_s = 300;  // of a loaded machine
    compiler_ = *text::make_grammar_compiler(*tokenizer_, {tokenizer_->eos_id().value()}, options);
  }
  // Which of the texts an answer may be.
  void expect(const StructuredOutput& wanted, std::string_view marks, bool open, const std::vector<std::string>& right,
              const std::vector<std::string>& wrong) {
    const auto behind = behind_thoughts(wanted, **thought_marks_named(marks), open);
    ASSERT_TRUE(behind);
    EXPECT_TRUE(text::check_structural_tag(behind->text, {}).ok()) << behind->text;
    const auto grammar = compiler_->compile(*behind);
    ASSERT_TRUE(grammar.ok()) << grammar.status().to_string() << "\n" << behind->text;
    for (const auto& text : right)
      EXPECT_TRUE(text::takes_tokens(**grammar, *tokenizer_, text::byte_tokens(*tokenizer_, text))) << text;
    for (const auto& text : wrong)
      EXPECT_FALSE(text::takes_tokens(**grammar, *tokenizer_, text::byte_tokens(*tokenizer_, text))) << text;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<text::GrammarCompiler> compiler_;
};

TEST_F(ThoughtConstraint, TheFormComesBehindThem) {
  expect(city_schema(), "qwen3", true, {"a {\"n\": 1 </thin</think>\n\n{\"n\": 2}", "</think>{\"n\": 2}"},
         {"{\"n\": 2}", "a</think>b", "a</think>{\"n\": true}", "a</think>{\"n\": 2} b"});
  expect(city_schema(), "qwen3", false, {"<think>\na</think>\n\n{\"n\": 2}", "{\"n\": 2}"},
         {"<think>a", "a</think>{\"n\": 2}", "x"});
}

TEST_F(ThoughtConstraint, OfEveryKind) {
  expect(output(OutputKind::kJsonObject, ""), "deepseek_r1", true, {"a</think>{\"b\": [1]}"}, {"a</think>[1]"});
  expect(output(OutputKind::kRegex, "a\\\\?b+"), "deepseek_r1", true, {"x</think>a\\bb", "x</think>ab"}, {"x</think>a"});
  expect(output(OutputKind::kGrammar, "root ::= \"yes\" | \"no\""), "mistral", false, {"[THINK]x[/THINK]no", "yes"},
         {"[THINK]x[/THINK]", "x"});
  expect(output(OutputKind::kChoice, "", {"a \"b\"", "c"}), "qwen3", true, {"x</think>\na \"b\"", "x</think>c"}, {"x</think>d"});
  expect(output(OutputKind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"const_string","value":"v"}})"), "qwen3",
         true, {"x</think>v"}, {"x</think>w"});
}

TEST_F(ThoughtConstraint, CallsInFreeText) {
  const auto calls = output(
      OutputKind::kStructuralTag,
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<tool_call>"],"tags":[{"type":"tag",)"
      R"("begin":"<tool_call>","content":{"type":"json_schema","json_schema":{"type":"object"}},"end":"</tool_call>"}],"stop_after_first":false}})");
  const std::vector<std::string> right = {"a <tool_call> b</think>c<tool_call>{}</tool_call>", "a</think>b"};
  expect(calls, "qwen3", true, right, {"a</think>b<tool_call>c"});
  expect(calls, "qwen3", false, {"<think>" + right[0], "<think>" + right[1], "b", "b<tool_call>{}</tool_call>"},
         {"<think>a</think>b<tool_call>c", "b<tool_call>c"});
}

TEST_F(ThoughtConstraint, OnGptOssChannels) {
  expect(city_schema(), "openai_gptoss", false,
         {"<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>{\"n\": 2}",
          "<|channel|>final<|message|>{\"n\": 2}"},
         {"{\"n\": 2}", "<|channel|>analysis<|message|>x<|end|>{\"n\": 2}"});
}

}  // namespace
}  // namespace choral::serve
