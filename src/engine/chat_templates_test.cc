// Which of a model's chat templates a request gets, from the model's files to the prompt.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "engine/tiny_model_test.h"
#include "support/temp_dir.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

// The tiny model with a tokenizer folder of the test's own: its tokenizer.json, and the config and files given.
class ChatTemplatesTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) { folder_.write(name, content); }
  std::unique_ptr<LLM> load(const std::string& templates_json) {
    EngineOptions options = tiny_options();
    std::ifstream in(options.model + "/tokenizer.json", std::ios::binary);
    std::stringstream tokenizer;
    tokenizer << in.rdbuf();
    write("tokenizer.json", tokenizer.str());
    write("tokenizer_config.json", "{\"chat_template\": " + templates_json + "}");
    options.tokenizer = folder_.path().string();
    return load_or_die(options);
  }
  static Result<std::string> prompt(const LLM& llm, const std::string& tools_json = {}) {
    Request request;
    request.messages = {{"user", "hi"}};
    request.tools_json = tools_json;
    return llm.apply_chat_template(request);
  }

  testing::TempDir folder_;
};

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "f"}}])";
constexpr const char* kBoth =
    R"([{"name": "default", "template": "plain {{ messages[0].content }}"},
        {"name": "tool_use", "template": "tools {{ tools[0].function.name }} {{ messages[0].content }}"}])";

TEST_F(ChatTemplatesTest, ARequestThatBringsToolsGetsTheToolTemplate) {
  const auto llm = load(kBoth);
  EXPECT_TRUE(llm->info().has_chat_template);
  EXPECT_EQ(*prompt(*llm), "plain hi");
  EXPECT_EQ(*prompt(*llm, "null"), "plain hi");
  EXPECT_EQ(*prompt(*llm, kTools), "tools f hi");
  // … and so does the answer, not the prompt alone.
  Request request;
  request.messages = {{"user", "hi"}};
  request.tools_json = kTools;
  request.sampling.max_tokens = 1;
  const auto output = llm->generate({request}).front();
  ASSERT_TRUE(output.status.ok()) << output.status.to_string();
  EXPECT_EQ(output.prompt_token_ids, *llm->tokenize("tools f hi", false));
}

TEST_F(ChatTemplatesTest, ASingleTemplateServesAll) {
  const auto llm = load(R"([{"name": "chat", "template": "{{ 'with' if tools else 'without' }}"}])");
  EXPECT_EQ(*prompt(*llm), "without");
  EXPECT_EQ(*prompt(*llm, kTools), "with");
}

TEST_F(ChatTemplatesTest, TemplatesInFilesStandForThoseOfTheConfig) {
  write("chat_template.jinja", "file {{ messages[0].content }}");
  {
    const auto llm = load(kBoth);
    EXPECT_EQ(*prompt(*llm), "file hi");
    EXPECT_EQ(*prompt(*llm, kTools), "file hi");
  }
  write("additional_chat_templates/tool_use.jinja", "file tools");
  EXPECT_EQ(*prompt(*load(kBoth), kTools), "file tools");
}

TEST_F(ChatTemplatesTest, ABrokenOneFailsOnlyWhereItIsNeeded) {
  const auto llm = load(R"([{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ ("}])");
  EXPECT_TRUE(llm->info().has_chat_template);
  EXPECT_EQ(*prompt(*llm), "plain");
  const auto broken = prompt(*llm, kTools).status();
  EXPECT_EQ(broken.code(), Code::kUnsupported);
  EXPECT_THAT(broken.message(), HasSubstr("'tool_use' cannot be used: "));
  EXPECT_THAT(broken.message(), HasSubstr("--chat-template"));
}

TEST_F(ChatTemplatesTest, WithoutADefaultTheNamesAreTold) {
  const auto llm = load(R"([{"name": "rag", "template": "R"}, {"name": "tool_use", "template": "T"}])");
  EXPECT_EQ(*prompt(*llm, kTools), "T");
  const auto missing = prompt(*llm).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("'default'; it has: rag, tool_use"));
}

}  // namespace
}  // namespace choral::engine
