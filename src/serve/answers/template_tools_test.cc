// How families are known, by their templates and by their parsers' names.
#include "serve/answers/template_tools.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "serve/answers/thought_marks.h"

namespace choral::serve {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string template_file(const std::string& name) {
  std::ifstream in(std::string(CHORAL_TEST_DATA) + "/text/chat/" + name + ".jinja", std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(ToolFormats, AreKnownByTemplateAndByName) {
  const std::vector<std::pair<std::string, ToolFormat>> families = {{"qwen2", ToolFormat::kHermes},
                                                                    {"qwen3", ToolFormat::kHermes},
                                                                    {"llama3", ToolFormat::kLlama3Json},
                                                                    {"mistral", ToolFormat::kMistral},
                                                                    {"deepseek_v3", ToolFormat::kDeepSeekV3},
                                                                    {"deepseek_v2", ToolFormat::kJson},
                                                                    {"gemma", ToolFormat::kJson},
                                                                    {"gemma3", ToolFormat::kJson},
                                                                    {"smollm2", ToolFormat::kHermes}};
  for (const auto& [name, format] : families) {
    const TemplateTools found = tools_of_template(template_file(name));
    EXPECT_EQ(found.format, format) << name;
    EXPECT_EQ(found.note.empty(), found.shows_tools) << name;
    EXPECT_EQ(found.knows_format, format != ToolFormat::kJson) << name;
  }
  const std::vector<std::pair<std::string, ToolFormat>> marks = {
      {"tools <tool_call>\n<function=x>", ToolFormat::kQwen3Coder},
      {"tools <tool_call>x<arg_key>", ToolFormat::kGlm45},
      {"tools <|start|>assistant<|channel|>final<|message|>", ToolFormat::kOpenAI},
      {"tools <|tool_calls_section_begin|>", ToolFormat::kKimiK2},
      {"tools <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", ToolFormat::kDeepSeekV31},
      {"tools <|start_of_role|>assistant<|tool_call|>", ToolFormat::kGranite},
      {"tools <|start_of_role|>assistant<|end_of_role|><tool_call>\n{", ToolFormat::kHermes},  // Granite 4
      {"tools <|tool|><|tool_call|>", ToolFormat::kPhi4Mini},
      {"tools <minimax:tool_call>\n<invoke name=x>", ToolFormat::kMiniMaxM2},
      {"tools <seed:tool_call>\n<function=x>", ToolFormat::kSeedOss},
      {"tools <|tool_call>call:f{}<tool_call|>", ToolFormat::kGemma4},
      {"tools <|im_start|> <functions> <function_calls>", ToolFormat::kOlmo3},
      {"tools <|python_start|>", ToolFormat::kLlama4Pythonic},
      {"tools <start_of_turn>model\n```tool_code", ToolFormat::kGemma}};
  for (const auto& [text, format] : marks) {
    EXPECT_EQ(tools_of_template(text).format, format) << text;
    EXPECT_EQ(tools_of_template(text).note, "");
  }
  for (const CallMarks& row : all_call_marks()) EXPECT_EQ(*tool_format_named(row.name), row.format);
  EXPECT_EQ(*tool_format_named("glm47"), ToolFormat::kGlm45);
  EXPECT_THAT(tool_format_named("hermas").status().message(),
              AllOf(HasSubstr("did you mean hermes?"), HasSubstr("kimi_k2, qwen3_coder, seed_oss, minimax_m2, glm45, openai")));
}

TEST(ThoughtMarks, AreKnownByTemplateAndByName) {
  const std::vector<std::pair<std::string, std::string>> templates = {{"<|im_start|>assistant\n<think>\n\n</think>", "qwen3"},
                                                                      {"<｜Assistant｜><think>\n", "deepseek_r1"},
                                                                      {"content.split('</think>')[-1]", "deepseek_r1"},
                                                                      {"<think></think><arg_key>", "glm45"},
                                                                      {"<|tool_calls_section_begin|><think>", "kimi_k2"},
                                                                      {"[THINK]", "mistral"},
                                                                      {"<|channel|>analysis<|message|>", "openai_gptoss"},
                                                                      {"<seed:think>", "seed_oss"},
                                                                      {"<|turn>model <|channel>thought <channel|>", "gemma4"},
                                                                      {"Write Here is my thought process: first", "granite"},
                                                                      {"<|start_of_role|><think>", "granite"}};
  for (const auto& [text, name] : templates) {
    const ThoughtMarks* found = thoughts_of_template(text);
    ASSERT_NE(found, nullptr) << text;
    EXPECT_EQ(found->name, name) << text;
  }
  EXPECT_EQ(thoughts_of_template(template_file("qwen3"))->name, "qwen3");
  EXPECT_EQ(thoughts_of_template(template_file("deepseek_v3"))->name, "deepseek_r1");  // R1's, which has the same calls
  for (const char* name : {"qwen2", "llama3", "mistral", "deepseek_v2", "gemma3", "smollm2"})
    EXPECT_EQ(thoughts_of_template(template_file(name)), nullptr) << name;
  for (const ThoughtMarks& row : all_thought_marks()) EXPECT_EQ(*thought_marks_named(row.name), &row);
  EXPECT_EQ(*thought_marks_named("none"), nullptr);
  EXPECT_THAT(thought_marks_named("qwen").status().message(),
              AllOf(HasSubstr("there is no reasoning parser \"qwen\""), HasSubstr("did you mean qwen3?"), HasSubstr("mistral")));
}

}  // namespace
}  // namespace choral::serve
