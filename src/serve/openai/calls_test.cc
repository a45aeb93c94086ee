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
  EXPECT_THAT(notes.warnings, ElementsAre("the field 'made_up' is not known and has no effect"));
}

TEST(ReadCalls, AMisspeltFieldIsToldWithTheNearestName) {
  const auto warnings = [](auto read, std::string_view body) {
    BodyNotes notes;
    const auto call = read(body, notes);
    return notes.warnings;
  };
  constexpr std::string_view kWarning = "the field 'temprature' is not known and has no effect; did you mean 'temperature'?";
  const auto completion = [](std::string_view body, BodyNotes& notes) { return read_completion_call(body, {}, notes); };
  const auto chat = [](std::string_view body, BodyNotes& notes) { return read_chat_call(body, {}, notes); };
  const auto response = [](std::string_view body, BodyNotes& notes) { return read_response_call(body, {}, notes); };
  EXPECT_THAT(warnings(completion, R"({"prompt":"a","temprature":0})"), ElementsAre(kWarning));
  EXPECT_THAT(warnings(chat, R"({"messages":[{"role":"user","content":"a"}],"temprature":0})"), ElementsAre(kWarning));
  EXPECT_THAT(warnings(response, R"({"input":"a","temprature":0})"), ElementsAre(kWarning));
  EXPECT_THAT(warnings(response, R"({"input":"a","max_output_token":1})"), ElementsAre(HasSubstr("'max_output_tokens'")));
  EXPECT_THAT(warnings(completion, "{\"a\\r\\nX: y\":1}"), ElementsAre(HasSubstr("'a\\x0d\\x0aX: y'"))) << "goes into a header";
}

TEST(ReadCalls, WhatWouldChangeTheAnswerAndIsNotThereIsRefusedByName) {
  const auto refused = [](const std::string& member) -> std::string {
    BodyNotes notes;
    const auto completion = read_completion_call("{\"prompt\":\"a\"," + member + "}", {}, notes);
    const auto chat = read_chat_call(R"({"messages":[{"role":"user","content":"a"}],)" + member + "}", {}, notes);
    const auto response = read_response_call("{\"input\":\"a\"," + member + "}", {}, notes);
    EXPECT_EQ(completion.status().code(), chat.status().code()) << member;
    EXPECT_EQ(completion.status().code(), response.status().code()) << member;
    EXPECT_THAT(notes.warnings, ElementsAre());
    if (chat.ok()) return "";
    EXPECT_EQ(chat.status().code(), Code::kUnsupported) << member;
    EXPECT_THAT(chat.status().message(), HasSubstr("'" + notes.param + "'"));
    return notes.param;
  };
  for (const char* member :
       {R"("mirostat":2)", R"("dynatemp_range":0.8)", R"("adaptive_target":0.5)", R"("tfs_z":0.5)", R"("samplers":["top_k"])",
        R"("functions":[{}])", R"("web_search_options":{})", R"("modalities":["text","audio"])", R"("audio":{"voice":"x"})",
        R"("penalize_nl":true)", R"("adapter_id":"x")"})
    EXPECT_EQ(refused(member), std::string(member).substr(1, std::string(member).find(':') - 2)) << member;
  for (const char* member :
       {R"("mirostat":0,"mirostat_tau":5,"mirostat_eta":0.1)", R"("dry_multiplier":0.0,"dry_base":1.75)", R"("typical_p":0.9)",
        R"("xtc_probability":0)", R"("suffix":null)", R"("suffix":"")", R"("top_n_sigma":-1)", R"("functions":[])",
        R"("modalities":["text"])", R"("use_beam_search":false)", R"("repeat_penalty":1.1)", R"("cache_prompt":true)"})
    EXPECT_EQ(refused(member), "") << member;
  BodyNotes notes;
  EXPECT_EQ(read_chat_call(R"({"messages":[{"role":"user","content":"a"}],"echo":true})", {}, notes).status().code(),
            Code::kUnsupported);
  EXPECT_EQ(read_response_call(R"({"input":"a","use_beam_search":true})", {}, notes).status().code(), Code::kUnsupported);
  EXPECT_EQ(read_response_call(R"({"input":"a","beam_width":2})", {}, notes).status().code(), Code::kUnsupported);
}

TEST(ReadCalls, ThinkingHasABudgetByAnyOfItsNames) {
  const auto read = [](const std::string& member) {
    BodyNotes notes;
    auto call = read_chat_call(R"({"messages":[{"role":"user","content":"a"}],)" + member + "}", {}, notes);
    EXPECT_THAT(notes.warnings, ElementsAre());
    return call;
  };
  EXPECT_EQ(read(R"("n":1)")->thinking_budget, -1);
  for (const char* name : {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"})
    EXPECT_EQ(read(fmt::format(R"("{}":7)", name))->thinking_budget, 7) << name;
  for (const char* bad : {"-2", "\"7\"", "1.5"})
    EXPECT_EQ(read(fmt::format(R"("thinking_budget":{})", bad)).status().code(), Code::kInvalidArgument) << bad;
  BodyNotes notes;
  EXPECT_EQ(read_completion_call(R"({"prompt":"a","thinking_budget":7})", {}, notes).status().code(), Code::kUnsupported);
  EXPECT_TRUE(read_completion_call(R"({"prompt":"a","thinking_budget":-1})", {}, notes).ok());
}

TEST(ReadCompletionCall, ASuffixLeavesNoRoomForWhatIsAboutThePromptAsItWasSent) {
  BodyNotes notes;
  EXPECT_EQ(read_completion_call(R"({"prompt":"a","suffix":"x"})", {}, notes)->suffix, "x");
  for (const char* more : {R"("echo":true)", R"("prompt_logprobs":1)", R"("truncate_prompt_tokens":5)"}) {
    EXPECT_FALSE(read_completion_call(std::string(R"({"prompt":"a","suffix":"x",)") + more + "}", {}, notes).ok()) << more;
    EXPECT_EQ(notes.param, "suffix");
  }
  EXPECT_EQ(read_chat_call(R"({"messages":[{"role":"user","content":"a"}],"suffix":"x"})", {}, notes).status().code(),
            Code::kUnsupported);
}

TEST(ReadTokenizeCall, TwoFormsAreToldApartByTheirFields) {
  BodyNotes notes;
  const auto llama = read_tokenize_call(R"({"content":["a",1],"with_pieces":true})", notes);
  ASSERT_TRUE(llama.ok()) << llama.status().to_string();
  EXPECT_EQ(llama->content->size(), 2u);
  EXPECT_FALSE(llama->add_special_tokens);
  EXPECT_TRUE(read_tokenize_call(R"({"content":"a","add_special":true})", notes)->add_special_tokens);
  EXPECT_TRUE(read_tokenize_call(R"({"prompt":"a"})", notes)->add_special_tokens);
  EXPECT_FALSE(read_tokenize_call(R"({"prompt":"a","with_pieces":true})", notes).ok());
  EXPECT_EQ(notes.param, "with_pieces");
  EXPECT_FALSE(read_tokenize_call(R"({"content":"a","prompt":"a"})", notes).ok());
  EXPECT_EQ(notes.param, "prompt");
}

TEST(ReadCalls, ReasoningIsAskedForInOneObjectToo) {
  const auto read = [](const std::string& reasoning) {
    BodyNotes notes;
    return read_chat_call(R"({"messages":[{"role":"user","content":"a"}],"reasoning":)" + reasoning + "}", {}, notes);
  };
  const auto call = read(R"({"effort":"low","max_tokens":30,"exclude":true,"enabled":true})");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call->thinking_budget, 30);
  EXPECT_FALSE(call->include_reasoning);
  EXPECT_EQ(call->request.template_kwargs_json, R"({"reasoning_effort":"low"})");
  EXPECT_EQ(read(R"({"summary":"auto"})").status().code(), Code::kUnsupported);
  EXPECT_EQ(read(R"({"enabled":false})").status().code(), Code::kUnsupported);
  EXPECT_EQ(read(R"({"max_tokens":-2})").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read("true").status().code(), Code::kInvalidArgument);
}

TEST(ReadCalls, AnUnknownFieldIsAnErrorWhereThatIsAskedFor) {
  const auto refused = [](auto read, const std::string& body) {
    BodyNotes notes{.strict = true};
    const auto call = read(body, notes);
    EXPECT_EQ(call.ok() ? Code::kOk : call.status().code(), Code::kInvalidArgument) << body;
    EXPECT_THAT(notes.warnings, ElementsAre());
    return call.ok() ? "" : call.status().message() + " " + notes.param;
  };
  const auto completion = [](std::string_view body, BodyNotes& notes) { return read_completion_call(body, {}, notes); };
  const auto chat = [](std::string_view body, BodyNotes& notes) { return read_chat_call(body, {}, notes); };
  const auto response = [](std::string_view body, BodyNotes& notes) { return read_response_call(body, {}, notes); };
  EXPECT_EQ(refused(completion, R"({"prompt":"a","temprature":1})"),
            "the field 'temprature' is not known; did you mean 'temperature'? temprature");
  EXPECT_THAT(refused(chat, R"({"messages":[{"role":"user","content":"a"}],"made_up":null})"),
              HasSubstr("'made_up' is not known"));
  EXPECT_THAT(refused(response, R"({"input":"a","made_up":1})"), HasSubstr("'made_up' is not known"));
  EXPECT_THAT(refused([](std::string_view body, BodyNotes& notes) { return read_tokenize_call(body, notes); },
                      R"({"prompt":"a","made_up":1})"),
              HasSubstr("'made_up' is not known"));
  BodyNotes notes{.strict = true};
  EXPECT_TRUE(completion(R"({"prompt":"a","user":"u","mirostat":0})", notes).ok()) << "these are known";
}

TEST(ReadCalls, FormsOfOtherServersAreTaken) {
  using Kind = StructuredOutput::Kind;
  const auto form = [](const std::string& member) {
    BodyNotes notes;
    const auto call = read_completion_call("{\"prompt\":\"a\"," + member + "}", {}, notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    EXPECT_THAT(notes.warnings, ElementsAre());
    return call.ok() ? call->request.structured_output : StructuredOutput();
  };
  EXPECT_EQ(form(R"("grammar":"root ::= \"a\"")"), (StructuredOutput{.kind = Kind::kGrammar, .text = "root ::= \"a\""}));
  EXPECT_EQ(form(R"("ebnf":"root ::= \"a\"")").kind, Kind::kGrammar);
  EXPECT_EQ(form(R"("regex":"a+")"), (StructuredOutput{.kind = Kind::kRegex, .text = "a+"}));
  const StructuredOutput schema{.kind = Kind::kJsonSchema, .text = R"({"type":"object"})"};
  EXPECT_EQ(form(R"("json_schema":{"type":"object"})"), schema);
  EXPECT_EQ(form(R"("response_format":{"type":"json_object","schema":{"type":"object"}})"), schema);
  EXPECT_EQ(form(R"("response_format":{"type":"json_schema","schema":{"type":"object"}})"), schema);
  EXPECT_EQ(form(R"("response_format":{"type":"json_object"})").kind, Kind::kJsonObject);
  EXPECT_EQ(form(R"("grammar":"","json_schema":null)").kind, Kind::kNone);
  BodyNotes notes;
  EXPECT_FALSE(read_completion_call(R"({"prompt":"a","grammar":"x","regex":"y"})", {}, notes).ok());
}

TEST(ReadCalls, NumbersOfOtherServersAreTaken) {
  BodyNotes notes;
  const auto call = read_completion_call(R"({"prompt":"a","n_predict":7,"n_cmpl":2,"seed":-5,"top_p":0})", {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call->request.sampling.max_tokens, 7);
  EXPECT_EQ(call->request.sampling.n, 2);
  EXPECT_EQ(call->request.sampling.seed, static_cast<uint64_t>(-5));
  const auto any = read_completion_call(R"({"prompt":"a","n_predict":-1,"seed":-1})", {}, notes);
  ASSERT_TRUE(any.ok());
  EXPECT_EQ(any->request.sampling.max_tokens, 0) << "as many as fit";
  EXPECT_EQ(read_completion_call(R"({"prompt":"a","max_tokens":-1})", {}, notes)->request.sampling.max_tokens, 0);
  EXPECT_EQ(read_chat_call(R"({"messages":[{"role":"user","content":"a"}],"max_completion_tokens":-1})", {}, notes)
                ->request.sampling.max_tokens,
            0);
  EXPECT_EQ(any->request.sampling.seed, std::nullopt);
  EXPECT_THAT(notes.warnings, ElementsAre());
  EXPECT_FALSE(read_completion_call(R"({"prompt":"a","seed":0.5})", {}, notes).ok());
  EXPECT_FALSE(read_chat_call(R"({"messages":[{"role":"user","content":"a"}],"n_predict":0})", {}, notes).ok());
}

TEST(ReadChatCall, GoesOnWithTheLastMessageOrBeginsOne) {
  const std::string begin = R"({"messages":[{"role":"assistant","content":"a"}],"continue_final_message":true)";
  BodyNotes notes;
  const auto call = read_chat_call(begin + "}", {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_TRUE(call->request.continue_final_message);
  EXPECT_TRUE(read_chat_call(begin + R"(,"add_generation_prompt":false})", {}, notes).ok());
  EXPECT_FALSE(read_chat_call(begin + R"(,"add_generation_prompt":true})", {}, notes).ok());
  EXPECT_EQ(notes.param, "continue_final_message");
}

TEST(ReadCompletionCall, LogprobsOfThePromptAreThoseThatAreAskedFor) {
  const auto computed = [](const std::string& members) {
    BodyNotes notes;
    const auto call = read_completion_call("{\"prompt\":\"a\"," + members + "}", {}, notes);
    return call.ok() ? std::pair(call->prompt_logprobs, call->request.sampling.prompt_logprobs)
                     : std::pair<std::optional<int>, std::optional<int>>();
  };
  EXPECT_EQ(computed(R"("echo":true,"logprobs":3)"), std::pair(std::optional<int>(), std::optional(3)));
  EXPECT_EQ(computed(R"("echo":true,"logprobs":3,"prompt_logprobs":5)"), std::pair(std::optional(5), std::optional(5)));
  EXPECT_EQ(computed(R"("echo":true,"logprobs":3,"prompt_logprobs":1)"), std::pair(std::optional(1), std::optional(3)));
  EXPECT_EQ(computed(R"("logprobs":3,"prompt_logprobs":1)"), std::pair(std::optional(1), std::optional(1)));
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
  EXPECT_EQ(notes.warnings.size(), 16U);
  EXPECT_THAT(notes.warnings.front(), HasSubstr("'f0'"));
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

TEST(ReadResponseCall, ThoughtsStandInTheMessageThatFollowsThem) {
  const auto messages = [](const std::string& items) {
    BodyNotes notes;
    const auto call = read_response_call(R"({"input":[)" + items + "]}", {}, notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return call.ok() ? call->chat.request.messages_json : "";
  };
  const std::string thought =
      R"({"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},)";
  EXPECT_EQ(messages(thought + R"({"role":"assistant","content":"a"},{"role":"user","content":"b"})"),
            R"([{"role":"assistant","content":"a","reasoning_content":"t"},{"role":"user","content":"b"}])");
  EXPECT_THAT(messages(R"({"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},)"
                       R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})"),
              HasSubstr(R"("reasoning_content":"s")"));
  EXPECT_EQ(messages(thought + R"({"role":"user","content":"b"},{"role":"assistant","content":"a"})"),
            R"([{"role":"user","content":"b"},{"role":"assistant","content":"a"}])");
}

TEST(ReadResponseCall, ToolsAreChosenInItsOwnFlatForm) {
  const auto choice = [](const std::string& flat) {
    BodyNotes notes;
    const auto call =
        read_response_call(R"({"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":)" + flat + "}", {}, notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return call.ok() ? call->chat.tool_choice_json : "";
  };
  EXPECT_EQ(choice(R"("required")"), R"("required")");
  EXPECT_EQ(choice(R"({"type":"function","name":"f"})"), R"({"type":"function","function":{"name":"f"}})");
  EXPECT_EQ(choice(R"({"type":"function","function":{"name":"f"}})"), R"({"type":"function","function":{"name":"f"}})");
  EXPECT_EQ(choice(R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]})"),
            R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}})");
}

TEST(ReadResponseCall, LogprobsComeWhereTheyAreIncluded) {
  const auto logprobs = [](const std::string& members) {
    BodyNotes notes;
    const auto call = read_response_call("{\"input\":\"a\"," + members + "}", {}, notes);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    EXPECT_THAT(notes.warnings, ElementsAre());
    return call.ok() ? call->chat.request.sampling.logprobs : std::nullopt;
  };
  EXPECT_EQ(logprobs(R"("include":["message.output_text.logprobs"],"top_logprobs":3)"), 3);
  EXPECT_EQ(logprobs(R"("include":["message.output_text.logprobs","reasoning.encrypted_content"])"), 0);
  EXPECT_EQ(logprobs(R"("include":[],"top_logprobs":3)"), std::nullopt);
  BodyNotes notes;
  EXPECT_FALSE(read_response_call(R"({"input":"a","include":"x"})", {}, notes).ok());
  EXPECT_FALSE(
      read_response_call(R"({"input":"a","include":["message.output_text.logprobs"],"top_logprobs":21})", {}, notes).ok());
}

TEST(ReadResponseCall, WhatNeedsAStoreIsRefused) {
  for (const char* member : {R"("previous_response_id":"resp_1")", R"("background":true)", R"("conversation":"c")",
                             R"("store":true)", R"("prompt":{"id":"p"})", R"("truncation":"auto")", R"("include":["made_up"])",
                             R"("context_management":[{"type":"compaction"}])"}) {
    BodyNotes notes;
    const auto call = read_response_call(std::string(R"({"input":"a",)") + member + "}", {}, notes);
    EXPECT_EQ(call.status().code(), Code::kUnsupported) << member;
  }
}

TEST(ReadResponseCall, GoesOnFromWhatIsStored) {
  const ResponseMemory memory{
      .stores = true, .earlier = [](const std::string& id) -> Result<std::vector<EarlierTurn>> {
        if (id != "resp_1") return not_found("no '{}'", id);
        return std::vector<EarlierTurn>{
            {R"({"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}]})",
             R"({"output":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},)"
             R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]}]})"}};
      }};
  BodyNotes notes;
  const auto call = read_response_call(R"({"instructions":"I","input":"c","previous_response_id":"resp_1"})", {}, notes, memory);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call->chat.request.messages_json,
            R"([{"role":"system","content":"I"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b","reasoning_content":"t"},{"role":"user","content":"c"}])");
  EXPECT_TRUE(call->store);
  EXPECT_EQ(call->input_json, R"({"input":[{"role":"user","content":[{"type":"input_text","text":"c"}],"type":"message",)"
                              R"("id":"msg_0","status":"completed"}]})");
  EXPECT_EQ(read_response_call(R"({"input":"c","previous_response_id":"resp_2"})", {}, notes, memory).status().code(),
            Code::kNotFound);
  EXPECT_EQ(notes.param, "previous_response_id");
  const auto quiet = read_response_call(R"({"input":"c","store":false})", {}, notes, memory);
  ASSERT_TRUE(quiet.ok());
  EXPECT_FALSE(quiet->store);
  EXPECT_EQ(quiet->input_json, "");
  EXPECT_FALSE(read_response_call(R"({"input":"c","store":false,"background":true})", {}, notes, memory).ok());
  EXPECT_TRUE(read_response_call(R"({"input":"c","stream":true,"background":true})", {}, notes, memory).ok());
}

TEST(ReadResponseCall, MetadataAreAFewShortTexts) {
  const auto taken = [](const std::string& metadata) {
    BodyNotes notes;
    return read_response_call(R"({"input":"a","metadata":)" + metadata + "}", {}, notes).ok();
  };
  EXPECT_TRUE(taken(R"({"k":"v"})"));
  for (const auto& bad : {std::string("7"), std::string(R"({"k":7})"), R"({"k":")" + std::string(513, 'v') + "\"}"})
    EXPECT_FALSE(taken(bad)) << bad;
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
