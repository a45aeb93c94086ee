#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace choral::text {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

Result<std::string> render(std::string source, std::string_view messages = "[]", std::string_view kwargs = {},
                           const jinja::RenderLimits& limits = {}) {
  CHORAL_TRY(const ChatTemplate chat, ChatTemplate::parse(std::move(source), limits));
  ChatInput input;
  input.messages_json = messages;
  input.kwargs_json = kwargs;
  return chat.apply(input);
}

// As Hugging Face's apply_chat_template(continue_final_message=True).
TEST(ChatTemplate, TheLastMessageMayGoOn) {
  const auto rendered = [](std::string source, std::string_view messages) -> std::string {
    const auto chat = ChatTemplate::parse(std::move(source));
    EXPECT_TRUE(chat.ok());
    ChatInput input;
    input.messages_json = messages;
    input.add_generation_prompt = false;
    input.continue_final_message = true;
    const auto prompt = chat->apply(input);
    return prompt.ok() ? *prompt : "refused: " + prompt.status().message();
  };
  const std::string turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}";
  const std::string trims = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}";
  constexpr std::string_view kChat = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"It is  "}])";
  EXPECT_EQ(rendered(turns, kChat), "<user>Hi</>\n<assistant>It is  ");
  EXPECT_EQ(rendered(trims, kChat), "<user>Hi</>\n<assistant>It is");
  EXPECT_EQ(rendered(turns, R"([{"role":"user","content":"CONTINUE_FINAL_MESSAGE_TAG "}])"), "<user>CONTINUE_FINAL_MESSAGE_TAG ");
  EXPECT_THAT(rendered("{{ messages[0].content }}", kChat), HasSubstr("does not show"));
  for (const char* bad :
       {"[]", R"([{"role":"user"}])", R"([{"role":"user","content":null}])", R"([{"role":"user","content":["x"]}])"})
    EXPECT_THAT(rendered(turns, bad), HasSubstr("no text that an answer could go on with")) << bad;
}

// What Hugging Face renders for ten families of templates, byte for byte, and the words of their refusals.
TEST(ChatTemplate, RendersTheGoldens) {
  const std::string folder = CHORAL_TEST_DATA "/text/chat/";
  std::istringstream lines(read_file(folder + "chat.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const ordered_json golden = ordered_json::parse(line);
    SCOPED_TRACE(golden["template"].get<std::string>() + " " + golden["case"].get<std::string>());
    const Result<ChatTemplate> chat = ChatTemplate::parse(read_file(folder + golden["template"].get<std::string>() + ".jinja"));
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    const std::string messages = golden["messages"].dump(), tools = golden["tools"].dump(), kwargs = golden["kwargs"].dump();
    ChatInput input;
    input.messages_json = messages;
    input.tools_json = tools;
    input.kwargs_json = kwargs;
    for (const auto& [name, token] : golden["special"].items()) input.special_tokens[name] = token.get<std::string>();
    input.add_generation_prompt = golden["add_generation_prompt"].get<bool>();
    ChatTemplateError error;
    const Result<std::string> prompt = chat->apply(input, &error);
    if (golden.contains("expected")) {
      ASSERT_TRUE(prompt.ok()) << prompt.status().message();
      EXPECT_EQ(*prompt, golden["expected"].get<std::string>());
    } else {
      ASSERT_FALSE(prompt.ok());
      EXPECT_EQ(prompt.status().code(), Code::kInvalidArgument);
      EXPECT_EQ(error.text, golden["error"].get<std::string>());
      EXPECT_TRUE(error.raised);
      EXPECT_THAT(prompt.status().message(), HasSubstr(error.text));
    }
  }
  EXPECT_EQ(cases, 81);
}

TEST(ChatTemplate, ErrorHasTheLineAndTheRawText) {
  const Result<ChatTemplate> chat = ChatTemplate::parse("a\n{% if true %}\n  {{ messages[0].no.x }}\n{% endif %}");
  ASSERT_TRUE(chat.ok());
  ChatInput input;
  input.messages_json = R"([{"role": "user"}])";
  ChatTemplateError error;
  const Result<std::string> prompt = chat->apply(input, &error);
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(error.text, "'dict object' has no attribute 'no'");
  EXPECT_EQ(error.line, 3);
  EXPECT_FALSE(error.raised);
  EXPECT_EQ(prompt.status().message(), "chat template: line 3: 'dict object' has no attribute 'no'");
}

TEST(ChatTemplate, SyntaxErrorsAreCorruptWithLine) {
  const Result<ChatTemplate> chat = ChatTemplate::parse("x\n\n{% for m in %}{% endfor %}");
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.status().code(), Code::kCorrupt);
  EXPECT_THAT(chat.status().message(), HasSubstr("line 3"));
  EXPECT_EQ(ChatTemplate::parse("{% include 'other' %}").status().code(), Code::kUnsupported);
  EXPECT_EQ(ChatTemplate::parse("\xff").status().code(), Code::kCorrupt);
}

TEST(ChatTemplate, VariablesAreThoseOfHuggingFace) {
  EXPECT_EQ(*render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token is defined }}"),
            "TrueTrueTrueFalse");
  const ChatTemplate chat = *ChatTemplate::parse("{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y-%m-%d') }}");
  ChatInput input;
  input.messages_json = "[]";
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.kwargs_json = R"({"eos_token": "<end>"})";
  input.now_unix_s = 86400;
  EXPECT_EQ(*chat.apply(input), "<s><end>1970-01-02");
  EXPECT_THAT(render("", "[]", R"({"messages": []})").status().message(), HasSubstr("must not set 'messages'"));
}

TEST(ChatTemplate, HostileJsonIsRefused) {
  for (const char* bad :
       {"", "{}", "[1]", "[", "[{\"a\": \"\\ud800\"}]", "[{\"a\": \"\xff\"}]", "[{\"a\": 1}] x", "[{\"a\": NaN}]"}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(render("x", bad).status().code(), Code::kInvalidArgument);
  }
  const std::string deep(100000, '[');
  EXPECT_EQ(render("x", deep).status().code(), Code::kTooLarge);
}

TEST(ChatTemplate, JsonNumbersKeepTheirDigits) {
  const std::string messages =
      R"([{"a": 12345678901234567890123, "b": 1.0, "c": 1e400, "d": -9223372036854775808, "e": 18446744073709551615, "a": 5}])";
  EXPECT_FALSE(render("x", messages).ok()) << "1e400 has no double";
  EXPECT_EQ(*render("{{ messages[0] | tojson }}",
                    R"([{"a": 18446744073709551615, "b": 1.0, "c": 1E5, "d": -9223372036854775808, "b": 2.50}])"),
            R"({"a": 18446744073709551615, "b": 2.5, "c": 100000.0, "d": -9223372036854775808})");
}

TEST(ChatTemplate, MessagesFromTheStructAreEscaped) {
  const std::vector<ChatMessage> messages = {{"user", "a\"\\\n\x01 é{{ 1 }}"}, {"assistant", ""}};
  const std::string json = chat_messages_json(messages);
  EXPECT_EQ(*render("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", json),
            "user:a\"\\\n\x01 é{{ 1 }};assistant:;");
}

TEST(ChatTemplate, LimitsEndHostileTemplates) {
  jinja::RenderLimits limits;
  limits.max_steps = 100000;
  limits.max_string_bytes = 1 << 16;
  limits.max_allocated_bytes = 1 << 22;
  limits.max_elements = 10000;
  const char* const hostile[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 99999999999 }}",
      "{{ [1] * 99999999999 }}",
      "{{ ('%s' * 9) % (('y' * 60000, ) * 9) }}",
      "{{ ('{}' * 9).format('y' * 60000, 'y' * 60000) }}",
      "{{ ('x' * 60000).replace('', 'y' * 60000) }}",
      "{{ ('y' * 60000).join(['', '', '']) }}",
      "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace() %}{% set ns.me = [ns, ns] %}{{ ns }}",
      "{{ {'a': [1]} | tojson(indent=99999999) }}",
      "{{ 'a\nb' | indent(99999999) }}",
      "{% for i in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}",
  };
  for (const char* source : hostile) {
    SCOPED_TRACE(source);
    EXPECT_EQ(render(source, "[]", {}, limits).status().code(), Code::kTooLarge);
  }
  EXPECT_EQ(render("{{ 9223372036854775807 + 1 }}").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(render("{{ -9223372036854775807 - 2 }}").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*render("{{ (-9223372036854775807 - 1) // -1 if false else (-9223372036854775807 - 1) % -1 }}"), "0");
}

TEST(ChatTemplate, NestingIsBounded) {
  const auto repeat = [](std::string_view unit, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += unit;
    return out;
  };
  constexpr int kMany = 5000;
  for (const auto& source :
       {"{{ " + repeat("(", kMany), "{{ " + repeat("[", kMany), "{{ " + repeat("not ", kMany) + "1 }}",
        "{{ " + repeat("-", kMany) + "1 }}", "{{ 1" + repeat(" + 1", kMany) + " }}", "{{ a" + repeat(".b", kMany) + " }}",
        "{{ a" + repeat("|e", kMany) + " }}", repeat("{% if 1 %}", kMany), "{{ a" + repeat(" is in [a", kMany)}) {
    EXPECT_EQ(ChatTemplate::parse(source).status().code(), Code::kTooLarge) << source.substr(0, 20);
  }
  EXPECT_EQ(*render("{{ 'a'" + repeat(" + 'a'", 150) + " }}"), std::string(151, 'a'));
}

TEST(ChatTemplate, AppliesFromManyThreads) {
  const ChatTemplate chat = *ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.n %}{% endfor %}{{ ns.n }}{{ 'x' | upper }}");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string messages = "[{\"n\": 1}, {\"n\": " + std::to_string(t) + "}]";
      ChatInput input;
      input.messages_json = messages;
      for (int i = 0; i < 200; ++i) wrong[t] += *chat.apply(input) != std::to_string(1 + t) + "X";
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(ChatTemplate, KnowsWhatItMentions) {
  const ChatTemplate chat = *ChatTemplate::parse("{% if enable_thinking %}{{ x.tools }}{% endif %}");
  EXPECT_TRUE(chat.mentions("enable_thinking"));
  EXPECT_FALSE(chat.mentions("tools"));
  EXPECT_FALSE(chat.mentions("loop"));
}

TEST(ChooseChatTemplate, FollowsHuggingFace) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(*choose_chat_template(Names{"default", "rag", "tool_use"}, false), "default");
  EXPECT_EQ(*choose_chat_template(Names{"default", "rag", "tool_use"}, true), "tool_use");
  EXPECT_EQ(*choose_chat_template(Names{"default", "rag"}, true), "default");
  EXPECT_EQ(*choose_chat_template(Names{"tool_use"}, true), "tool_use");
  const auto missing = choose_chat_template(Names{"rag", "tool_use"}, false);
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("'default'; it has: rag, tool_use"));
  EXPECT_THAT(choose_chat_template(Names{}, true).status().message(), HasSubstr("it has: none"));
  for (const char* none : {"", " ", "null", " null\n"}) EXPECT_FALSE(brings_tools(none)) << none;
  for (const char* some : {"[]", "[{}]", "nul"}) EXPECT_TRUE(brings_tools(some)) << some;
}

}  // namespace
}  // namespace choral::text
