#include "serve/ollama/ollama_call.h"

#include <gmock/gmock.h>

#include "serve/ollama/ollama_form.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

Result<OllamaCall> read_chat_of(std::string_view body) {
  BodyNotes notes;
  return read_ollama_chat(body, {}, notes);
}

std::string chat_fault(std::string_view fields, std::string& param) {
  BodyNotes notes;
  const auto call =
      read_ollama_chat(fmt::format(R"({{"model":"m","messages":[{{"role":"user","content":"a"}}],{}}})", fields), {}, notes);
  param = notes.param;
  return call.ok() ? "" : std::string(call.status().message());
}

TEST(OllamaCall, IsAChatInOtherWords) {
  const auto call = read_chat_of(
      R"({"model":"pirate:latest","messages":[{"role":"user","content":"a"},{"role":"assistant","thinking":"t","content":"b",)"
      R"("tool_calls":[{"function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","tool_name":"f","content":"c"}],)"
      R"("options":{"num_predict":7,"seed":3,"temperature":0.5,"stop":["x"],"num_ctx":4096},"think":"low","keep_alive":-1})");
  ASSERT_TRUE(call.ok()) << call.status().message();
  EXPECT_EQ(call->chat.model, "pirate");
  EXPECT_TRUE(call->chat.stream);
  const Request& request = call->chat.request;
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.sampling.seed, 3u);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_THAT(request.messages_json, HasSubstr(R"("reasoning_content":"t")"));
  EXPECT_THAT(request.messages_json, HasSubstr(R"("arguments":{"x":1})"));
  EXPECT_THAT(request.template_kwargs_json, HasSubstr(R"("reasoning_effort":"low")"));
  EXPECT_FALSE(read_chat_of(R"({"model":"m","messages":[{"role":"user","content":"a"}],"stream":false})")->chat.stream);
}

TEST(OllamaCall, LimitsAndSeedsBelowZeroSayNothing) {
  const auto call =
      read_chat_of(R"({"model":"m","messages":[{"role":"user","content":"a"}],"options":{"num_predict":-2,"seed":-1}})");
  ASSERT_TRUE(call.ok()) << call.status().message();
  EXPECT_EQ(call->chat.request.sampling.max_tokens, 0);
  EXPECT_FALSE(call->chat.request.sampling.seed);
}

TEST(OllamaCall, WhatIsNotServedIsNamed) {
  std::string param;
  for (const auto& [fields, where] : {std::pair(R"("format":"xml")", "format"),
                                      {R"("logprobs":true)", "logprobs"},
                                      {R"("think":"much")", "think"},
                                      {R"("options":{"mirostat":1})", "options.mirostat"},
                                      {R"("options":{"penalize_newline":false})", "options.penalize_newline"},
                                      {R"("options":[])", "options"},
                                      {R"("keep_alive":true)", "keep_alive"},
                                      {R"("options":{"tfs_z":0.5})", "options.tfs_z"}}) {
    EXPECT_NE(chat_fault(fields, param), "") << fields;
    EXPECT_EQ(param, where);
  }
  EXPECT_EQ(chat_fault(R"("options":{"mirostat":0,"tfs_z":1,"penalize_newline":true,"mirostat_tau":5},"logprobs":false)", param),
            "");
}

TEST(OllamaCall, APromptIsAConversationOrRaw) {
  BodyNotes notes;
  const auto told = read_ollama_generate(R"({"model":"m","prompt":"a","system":"s"})", {}, true, notes);
  ASSERT_TRUE(told.ok());
  EXPECT_THAT(told->chat.request.messages_json, HasSubstr("system"));
  const auto raw = read_ollama_generate(R"({"model":"m","prompt":"a","raw":true})", {}, true, notes);
  ASSERT_TRUE(raw.ok());
  EXPECT_EQ(raw->chat.request.prompt, "a");
  EXPECT_EQ(read_ollama_generate(R"({"model":"m","prompt":"a"})", {}, false, notes)->chat.request.prompt, "a");
  EXPECT_FALSE(read_ollama_generate(R"({"model":"m","prompt":"a","system":"s"})", {}, false, notes).ok());
  EXPECT_TRUE(read_ollama_generate(R"({"model":"m"})", {}, true, notes)->asks_nothing);
  EXPECT_FALSE(read_ollama_generate(R"({"prompt":"a"})", {}, true, notes).ok());
}

TEST(OllamaForm, TimesAreWrittenAsOllamaDoes) { EXPECT_EQ(ollama_time(0), "1970-01-01T00:00:00Z"); }

}  // namespace
}  // namespace choral::serve
