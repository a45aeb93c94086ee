// Constraints of every family through the library: answers sampled under them are read back as calls that keep the tools'
// schemas. Needs the library (CHORAL_XGRAMMAR).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "serve/openai/answer_plan.h"
#include "serve/tools/call_form.h"
#include "serve/tools/tools_request.h"
#include "text/grammar/sampled_answer_test.h"

namespace choral::serve {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"},"unit":{"enum":["C","F"]}},
         "required":["n","unit"],"$defs":{"n":{"type":"integer","minimum":0,"maximum":9}}}}},
        {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{"s":{"type":"string"}},"required":["s"]}}}])";

void expect_right(const ToolCall& call, const std::string& answer) {
  const Json arguments = Json::parse(call.arguments, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << answer;
  if (call.name == "get_weather") {
    EXPECT_TRUE(arguments["n"].is_number_integer() && arguments["n"] >= 0 && arguments["n"] <= 9) << answer;
    EXPECT_TRUE(arguments["unit"] == "C" || arguments["unit"] == "F") << answer;
  } else {
    EXPECT_EQ(call.name, "now") << answer;
    EXPECT_TRUE(arguments["s"].is_string()) << answer;
  }
}

class ToolConstraint : public ::testing::TestWithParam<std::pair<ToolFormat, const char*>> {
 protected:
  void SetUp() override {
    if (!std::getenv("CHORAL_XGRAMMAR")) GTEST_SKIP() << "CHORAL_XGRAMMAR names no folder with xgrammar";
    tokenizer_ = text::test_tokenizer(GetParam().second);
    end_id_ = tokenizer_->eos_id().value();
    text::GrammarOptions options;
    options.limits.max_compile_s = 300;  // of a loaded machine
    compiler_ = *text::make_grammar_compiler(*tokenizer_, {end_id_}, options);
    ASSERT_TRUE(compiler_->library_status().ok()) << compiler_->library_status().to_string();
  }
  ToolPlan plan(std::string_view choice, std::string_view parallel) {
    std::string param;
    auto made = plan_tools({kTools, choice, parallel}, {GetParam().first, true, {}}, param);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return *made;
  }
  // Some answers under the plan, parsed. Special tokens count with their spelling, as they do in the text of such an answer.
  std::vector<std::pair<std::string, ReadAnswer>> answers(const ToolPlan& plan, int rounds) {
    std::vector<std::pair<std::string, ReadAnswer>> out;
    const auto grammar = compiler_->compile(plan.constraint);
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    for (int round = 0; grammar.ok() && round < rounds; ++round) {
      auto matcher = (*grammar)->matcher();
      const auto& parameters = parameter_marks(GetParam().first);
      const bool has_marks = !held_form(GetParam().first).style.empty();
      const auto text = text::sample(**matcher, *tokenizer_, end_id_, random_, 40 + round, 600,
                                     has_marks ? parameters.value_end : std::string_view());
      if (!text) continue;
      out.emplace_back(*text, read_answer(make_answer_reader({.tools = plan}, Announce::kWhole), *text, AnswerEnd::kOver));
    }
    return out;
  }

  std::mt19937 random_{9};
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<text::GrammarCompiler> compiler_;
  int32_t end_id_ = 0;
};

TEST_P(ToolConstraint, RequiredAnswersAreCallsAndNothingElse) {
  for (const std::string_view parallel : {"true", "false"}) {
    size_t ended = 0, most = 0;
    for (const auto& [text, parsed] : answers(plan("\"required\"", parallel), 12)) {
      ++ended;
      EXPECT_EQ(parsed.content, "") << text;
      EXPECT_FALSE(parsed.calls.empty()) << text;
      most = std::max(most, parsed.calls.size());
      for (const ToolCall& call : parsed.calls) expect_right(call, text);
    }
    EXPECT_GT(ended, 3u);
    if (parallel == "false") {
      EXPECT_EQ(most, 1u);
    }
  }
}

TEST_P(ToolConstraint, ANamedFunctionIsCalled) {
  const ToolPlan named = plan(R"({"type":"function","function":{"name":"get_weather"}})", "");
  size_t ended = 0;
  for (const auto& [text, parsed] : answers(named, 8)) {
    ++ended;
    ASSERT_EQ(parsed.calls.size(), 1u) << text;
    EXPECT_EQ(parsed.calls[0].name, "get_weather");
    expect_right(parsed.calls[0], text);
  }
  EXPECT_GT(ended, 3u);
}

TEST_P(ToolConstraint, AutoLetsTextAndRightCallsThrough) {
  const ToolPlan free = plan("\"auto\"", "true");
  if (free.constraint.kind == StructuredOutput::Kind::kNone) return;
  for (const auto& [text, parsed] : answers(free, 8)) {
    for (const ToolCall& call : parsed.calls) expect_right(call, text);
  }
}

// What a model may write of its own accord once a call has begun, by the family's own form.
class HeldCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("CHORAL_XGRAMMAR")) GTEST_SKIP() << "CHORAL_XGRAMMAR names no folder with xgrammar";
  }
  void expect(ToolFormat format, std::string_view choice, const std::vector<std::string>& right,
              const std::vector<std::string>& wrong) {
    std::string param;
    const auto made = plan_tools({kTools, choice, "true"}, {format, true, {}}, param);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto tokenizer = text::test_tokenizer("qwen2");
    text::GrammarOptions options;
    options.limits.max_compile_s = 300;  // of a loaded machine
    const auto compiler = *text::make_grammar_compiler(*tokenizer, {tokenizer->eos_id().value()}, options);
    const auto grammar = compiler->compile(made->constraint);
    ASSERT_TRUE(grammar.ok()) << grammar.status().to_string() << "\n" << made->constraint.text;
    for (const auto& text : right)
      EXPECT_TRUE(text::takes_tokens(**grammar, *tokenizer, text::byte_tokens(*tokenizer, text))) << text;
    for (const auto& text : wrong)
      EXPECT_FALSE(text::takes_tokens(**grammar, *tokenizer, text::byte_tokens(*tokenizer, text))) << text;
  }
};

TEST_F(HeldCalls, OfParametersBetweenMarks) {
  for (const std::string mark : {"tool_call", "seed:tool_call"}) {
    const auto call = [&mark](const std::string& name, const std::string& parameters) {
      return "Well. <" + mark + ">\n<function=" + name + ">" + parameters + "</function>\n</" + mark + ">";
    };
    const std::string n = "\n<parameter=n>\n7\n</parameter>", unit = "\n<parameter=unit>\nC\n</parameter>\n";
    expect(mark == "tool_call" ? ToolFormat::kQwen3Coder : ToolFormat::kSeedOss, "\"auto\"",
           {"text", call("get_weather", n + unit), call("now", "\n<parameter=s>\n7 <b>\n\n</parameter>\n") + " more"},
           {call("get_weather", n), call("get_weather", "\n<parameter=n>\nseven\n</parameter>" + unit),
            call("get_weather", n + "\n<parameter=unit>\nK\n</parameter>\n"), call("then", "\n")});
  }
  const auto invoked = [](const std::string& n) {
    return "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"n\">" + n +
           "</parameter>\n<parameter name=\"unit\">C</parameter>\n</invoke>\n</minimax:tool_call>";
  };
  expect(ToolFormat::kMiniMaxM2, "\"auto\"", {"text", invoked("7") + " more"},
         {invoked("x"), "<minimax:tool_call>\n<invoke name=\"then\">"});
  const std::string n = "\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>", end = "\n</tool_call>";
  const std::string unit = "<arg_key>unit</arg_key><arg_value>C</arg_value>";
  expect(ToolFormat::kGlm45, "\"auto\"", {"text", "<tool_call>get_weather" + n + unit + end},
         {"<tool_call>get_weather" + n + end, "<tool_call>then" + end,
          "<tool_call>get_weather\n<arg_key>n</arg_key>\n<arg_value>x</arg_value>" + unit + end});
}

TEST_F(HeldCalls, OfKimiHaveNumbers) {
  const auto call = [](const std::string& name, const std::string& s) {
    return "<|tool_call_begin|>functions." + name + "<|tool_call_argument_begin|>" + s + "<|tool_call_end|>";
  };
  const std::string begin = "<|tool_calls_section_begin|>", end = "<|tool_calls_section_end|>", text = "{\"s\": \"x\"}";
  expect(ToolFormat::kKimiK2, "\"required\"",
         {begin + call("now:0", text) + call("now:1", text) + end, begin + call("now:12", text) + end},
         {begin + call("now:", text) + end, begin + call("now", text) + end, begin + call("now:1234", text) + end});
}

TEST_F(HeldCalls, OfGptOssOnTheirChannel) {
  const std::string begin = "<|channel|>commentary to=functions.", middle = " <|constrain|>json<|message|>",
                    text = "{\"s\": \"x\"}";
  const std::string thought = "<|channel|>analysis<|message|>to=functions.then?<|end|><|start|>assistant";
  expect(ToolFormat::kOpenAI, R"({"type":"function","function":{"name":"now"}})", {begin + "now" + middle + text},
         {text, "<|channel|>final<|message|>" + text, begin + "get_weather" + middle + "{\"n\": 1, \"unit\": \"C\"}",
          begin + "now" + middle + text + "<|call|><|start|>assistant" + begin + "now" + middle + text});
  expect(ToolFormat::kOpenAI, "\"auto\"",
         {thought + begin + "now" + middle + text, thought + "<|channel|>final<|message|>Hi.", begin + "now" + middle + text},
         {begin + "now" + middle + "{\"s\": 1}", thought + begin + "then" + middle + text});
}

INSTANTIATE_TEST_SUITE_P(Families, ToolConstraint,
                         ::testing::Values(std::pair(ToolFormat::kHermes, "qwen2"), std::pair(ToolFormat::kLlama3Json, "llama3"),
                                           std::pair(ToolFormat::kMistral, "mistral"),
                                           std::pair(ToolFormat::kDeepSeekV3, "deepseek"), std::pair(ToolFormat::kJson, "gemma"),
                                           std::pair(ToolFormat::kQwen3Coder, "qwen2"), std::pair(ToolFormat::kGlm45, "qwen2"),
                                           std::pair(ToolFormat::kKimiK2, "qwen2"), std::pair(ToolFormat::kOpenAI, "qwen2"),
                                           std::pair(ToolFormat::kGranite, "qwen2"), std::pair(ToolFormat::kGranite20b, "qwen2"),
                                           std::pair(ToolFormat::kPhi4Mini, "qwen2"), std::pair(ToolFormat::kPythonic, "llama3"),
                                           std::pair(ToolFormat::kDeepSeekV31, "deepseek"),
                                           std::pair(ToolFormat::kSeedOss, "qwen2"), std::pair(ToolFormat::kMiniMaxM2, "qwen2"),
                                           std::pair(ToolFormat::kGemma4, "qwen2"), std::pair(ToolFormat::kOlmo3, "qwen2")));

}  // namespace
}  // namespace choral::serve
