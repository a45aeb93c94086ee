#include "serve/openai/calls.h"

#include <gmock/gmock.h>

#include "serve/openai/json.h"
#include "serve/openai/response_call.h"
#include "support/allocation_counter.h"

namespace choral::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadCompletionCall, TakesEveryFormOfPrompt) {
  const auto count = [](const std::string& prompt) -> size_t {
    BodyNotes notes;
    const auto call = read_completion_call("{\"prompt\":" + prompt + "}", {}, notes);
    return call.ok() ? call->prompts.size() : 0;
  };
  EXPECT_EQ(count(R"("a")"), 1u);
  EXPECT_EQ(count(R"(["a","b"])"), 2u);
  EXPECT_EQ(count("[1,2,3]"), 1u);
  EXPECT_EQ(count("[[1],[2,3]]"), 2u);
  EXPECT_EQ(count(R"(["a",[1]])"), 2u);
  for (const char* bad : {"[]", "7", "{}", "[[\"a\"]]", "[1,\"a\"]", "[null]", "[1.5]"}) EXPECT_EQ(count(bad), 0u) << bad;
}

TEST(ReadCompletionCall, WithoutTokensThePromptAloneComesBack) {
  BodyNotes notes;
  const auto call = read_completion_call(R"({"prompt":"a","echo":true,"max_tokens":0,"logprobs":3})", {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_TRUE(call->no_tokens);
  EXPECT_EQ(call->request.sampling.prompt_logprobs, 3);
  EXPECT_FALSE(read_completion_call(R"({"prompt":"a","max_tokens":0})", {}, notes).ok());
  EXPECT_EQ(notes.param, "max_tokens");
}

TEST(ReadCompletionCall, DefaultsAreTheModels) {
  SamplingParams defaults;
  defaults.top_k = 7;
  defaults.temperature = 0.5f;
  BodyNotes notes;
  const auto call = read_completion_call(R"({"prompt":"a","temperature":0,"top_p":null,"seed":4})", defaults, notes);
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->request.sampling.top_k, 7);
  EXPECT_EQ(call->request.sampling.temperature, 0);
  EXPECT_EQ(call->request.sampling.seed, 4u);
}

TEST(ReadCompletionCall, NumberedAdaptersWaitForTheirNames) {
  BodyNotes notes;
  const auto call = read_completion_call(R"({"prompt":"a","lora":[{"id":3,"scale":0.5},"x",{"name":"y","scale":2}]})", {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_THAT(call->lora_ids, ElementsAre(3, -1, -1));
  EXPECT_EQ(call->request.adapters[0].scale, 0.5f);
  EXPECT_EQ(call->request.adapters[2].name, "y");
  for (const char* bad : {R"([{"id":-1}])", R"([{"id":"a"}])", R"([7])", R"([{"id":1,"scale":"x"}])"})
    EXPECT_FALSE(read_completion_call(std::string(R"({"prompt":"a","lora":)") + bad + "}", {}, notes).ok()) << bad;
}

TEST(ReadChatCall, UnknownFieldsAreNamedAndOpenAIsOwnAreNot) {
  BodyNotes notes;
  const auto call =
      read_chat_call(R"({"messages":[{"role":"user","content":"a"}],"user":"u","store":true,"made_up":1})", {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_THAT(notes.unknown, ElementsAre("made_up"));
}

TEST(ReadChatCall, EffortGoesToTheTemplate) {
  BodyNotes notes;
  const auto call = read_chat_call(
      R"({"messages":[{"role":"user","content":"a"}],"reasoning_effort":"low","chat_template_kwargs":{"x":1}})", {}, notes);
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->request.template_kwargs_json, R"({"reasoning_effort":"low","x":1})");
}

TEST(ReadChatCall, DocumentsGoToTheTemplateWhichTheTemplatesOwnVariablesOverrule) {
  const auto kwargs = [](const std::string& members) -> std::string {
    BodyNotes notes;
    const auto call = read_chat_call(R"({"messages":[{"role":"user","content":"a"}],)" + members + "}", {}, notes);
    return call.ok() ? call->request.template_kwargs_json : notes.param;
  };
  EXPECT_EQ(kwargs(R"("documents":[{"title":"t","text":"x"}])"), R"({"documents":[{"title":"t","text":"x"}]})");
  EXPECT_EQ(kwargs(R"("documents":[{}],"chat_template_kwargs":{"documents":[],"a":1})"), R"({"documents":[],"a":1})");
  EXPECT_EQ(kwargs(R"("chat_template_kwargs":{"documents":[],"a":1},"documents":[{}])"), R"({"documents":[],"a":1})");
  for (const char* bad : {R"("documents":{})", R"("documents":["x"])"}) EXPECT_EQ(kwargs(bad), "documents") << bad;
}

TEST(ReadCalls, NoSecondFormOfTheMessagesIsMade) {
  std::string objects = "{}";
  for (int i = 0; i < 20'000; ++i) objects += ",{}";
  const std::string message = R"({"role":"user","content":[{"type":"input_text","text":"a","x":[)" + objects + "]}]}";
  const auto parsed = testing::count_allocations([&] { EXPECT_TRUE(parse_object(message, "the message").ok()); });
  const auto chat = testing::count_allocations([&] {
    BodyNotes notes;
    EXPECT_TRUE(read_chat_call("{\"messages\":[" + message + "]}", {}, notes).ok());
  });
  const auto response = testing::count_allocations([&] {
    BodyNotes notes;
    EXPECT_TRUE(read_response_call("{\"input\":[" + message + "]}", {}, notes).ok());
  });
  EXPECT_LT(chat.bytes, 3 * parsed.bytes / 2) << "of " << parsed.bytes;
  EXPECT_LT(response.bytes, 3 * parsed.bytes / 2);
}

TEST(ReadCalls, APromptIsCutWhereTheBodySaysSo) {
  BodyNotes notes;
  const auto embedding = read_embedding_call(R"({"input":"a","truncate_prompt_tokens":-1,"truncation_side":"right"})", notes);
  ASSERT_TRUE(embedding.ok()) << embedding.status().to_string();
  EXPECT_EQ(embedding->request.truncate_prompt_tokens, -1);
  EXPECT_EQ(embedding->request.truncation_side, Request::TruncationSide::kRight);
  EXPECT_FALSE(read_completion_call(R"({"prompt":"a","echo":true,"truncate_prompt_tokens":5})", {}, notes).ok());
  EXPECT_EQ(notes.param, "truncate_prompt_tokens");
  EXPECT_FALSE(read_completion_call(R"({"prompt":"a","truncation_side":"middle"})", {}, notes).ok());
}

TEST(ReadResponseCall, NotesTheFirstOfManyUnknownFields) {
  std::string body = R"({"input":"a")";
  for (int i = 0; i < 40; ++i) body += ",\"f" + std::to_string(i) + "\":1";
  BodyNotes notes;
  ASSERT_TRUE(read_response_call(body + "}", {}, notes).ok());
  EXPECT_EQ(notes.unknown.size(), 16U);
  EXPECT_EQ(notes.unknown.front(), "f0");
}

TEST(ReadResponseCall, IsAChat) {
  BodyNotes notes;
  const auto call = read_response_call(
      R"({"instructions":"Be brief.","input":[{"role":"user","content":"a"},)"
      R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c1","output":"7"}],)"
      R"("max_output_tokens":9,"tools":[{"type":"function","name":"f","parameters":{}}],"metadata":{"k":"v"}})",
      {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(
      call->chat.request.messages_json,
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"7"}])");
  EXPECT_EQ(call->chat.request.tools_json, R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  EXPECT_EQ(call->chat.request.sampling.max_tokens, 9);
  EXPECT_THAT(call->echo_json, HasSubstr(R"("metadata":{"k":"v"})"));
}

TEST(ReadResponseCall, WhatNeedsAStoreIsRefused) {
  for (const char* member : {R"("previous_response_id":"resp_1")", R"("background":true)", R"("conversation":"c")"}) {
    BodyNotes notes;
    const auto call = read_response_call(std::string(R"({"input":"a",)") + member + "}", {}, notes);
    EXPECT_EQ(call.status().code(), Code::kUnsupported) << member;
  }
}

TEST(Schemas, AreJson) {
  for (const auto& schema :
       {completion_schema(), chat_schema(), embedding_schema(), tokenize_schema(), detokenize_schema(), response_schema()}) {
    const auto json = nlohmann::json::parse(schema, nullptr, false);
    EXPECT_EQ(json["type"], "object") << schema;
  }
}

}  // namespace
}  // namespace choral::serve
