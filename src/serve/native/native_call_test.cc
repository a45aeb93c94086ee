#include "serve/native/native_call.h"

#include <gmock/gmock.h>

#include <limits>

#include "serve/native/generation_settings.h"

namespace choral::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Ids = std::vector<int32_t>;

Result<NativeCall> read_native(const std::string& members, BodyNotes& notes) {
  return read_native_call("{\"prompt\":\"x\"" + (members.empty() ? "" : "," + members) + "}", {}, notes);
}

TEST(ReadNativeCall, APromptKeepsTheOrderOfItsParts) {
  BodyNotes notes;
  const auto call = read_native_call(R"({"prompt":[1,2,"a","b",3]})", {}, notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  ASSERT_EQ(call->prompts.size(), 1u);
  const PromptParts& parts = call->prompts[0];
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(std::get<Ids>(parts[0]), (Ids{1, 2}));
  EXPECT_EQ(std::get<std::string>(parts[1]), "a");
  EXPECT_EQ(std::get<std::string>(parts[2]), "b");
  EXPECT_EQ(std::get<Ids>(parts[3]), (Ids{3}));
}

TEST(ReadNativeCall, PromptsAreBounded) {
  BodyNotes notes;
  std::string many = "[\"a\"";
  for (int i = 0; i < 1024; ++i) many += ",\"a\"";
  EXPECT_EQ(read_native_call("{\"prompt\":" + many + "]}", {}, notes).status().code(), Code::kTooLarge);
  std::string mixed = "[1";
  for (int i = 0; i < 1024; ++i) mixed += ",\"a\",1";
  EXPECT_EQ(read_native_call("{\"prompt\":" + mixed + "]}", {}, notes).status().code(), Code::kTooLarge);
  EXPECT_EQ(notes.param, "prompt");
}

TEST(ReadNativeCall, AnAnswerGoesToTheEndUnlessItIsSaid) {
  BodyNotes notes;
  EXPECT_EQ(read_native("", notes)->request.sampling.max_tokens, 0);
  EXPECT_EQ(read_native(R"("n_predict":-1)", notes)->request.sampling.max_tokens, 0);
  EXPECT_EQ(read_native(R"("n_predict":7)", notes)->request.sampling.max_tokens, 7);
  EXPECT_EQ(read_native(R"("max_tokens":7)", notes)->request.sampling.max_tokens, 7);
  EXPECT_FALSE(read_native("", notes)->no_tokens);
  EXPECT_TRUE(read_native(R"("n_predict":0)", notes)->no_tokens);
}

TEST(ReadNativeCall, BiasesOfIdsAndTexts) {
  BodyNotes notes;
  const auto list = read_native(R"("logit_bias":[[5,1.5],["ab",-2],[6,false]])", notes);
  ASSERT_TRUE(list.ok()) << list.status().to_string();
  EXPECT_THAT(list->request.sampling.logit_bias, ElementsAre(Pair(5, 1.5f), Pair(6, -std::numeric_limits<float>::infinity())));
  EXPECT_THAT(list->request.sampling.logit_bias_texts, ElementsAre(Pair("ab", -2.0f)));
  const auto object = read_native(R"("logit_bias":{"5":1.5,"ab":false})", notes);
  ASSERT_TRUE(object.ok()) << object.status().to_string();
  EXPECT_THAT(object->request.sampling.logit_bias, ElementsAre(Pair(5, 1.5f)));
  EXPECT_THAT(object->request.sampling.logit_bias_texts, ElementsAre(Pair("ab", -std::numeric_limits<float>::infinity())));
}

TEST(ReadInfillCall, TakesTheGapApart) {
  BodyNotes notes;
  const auto call = read_infill_call(
      R"({"input_prefix":"a","input_suffix":"b","prompt":"c","input_extra":[{"text":"t"},{"filename":"f","text":"u"}]})", {},
      notes);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(std::get<std::string>(call->gap->before), "a");
  EXPECT_EQ(call->gap->behind, "b");
  EXPECT_EQ(call->gap->begun, "c");
  EXPECT_EQ(call->gap->files[0].name, "tmp");
  EXPECT_EQ(call->gap->files[1].name, "f");
  EXPECT_FALSE(read_infill_call(R"({"input_prefix":"a"})", {}, notes).ok());
  EXPECT_EQ(notes.param, "input_suffix");
  std::string many = "[{\"text\":\"\"}";
  for (int i = 0; i < 1024; ++i) many += ",{\"text\":\"\"}";
  EXPECT_EQ(read_infill_call(R"({"input_prefix":"","input_suffix":"","input_extra":)" + many + "]}", {}, notes).status().code(),
            Code::kTooLarge);
}

TEST(GenerationSettings, TellNothingThatIsLong) {
  NativeCall call;
  call.request.sampling.logit_bias = {{65, 1.5f}};
  call.request.structured_output = {.kind = StructuredOutput::Kind::kGrammar, .text = "root ::= \"a\""};
  call.request.adapters = {{.name = "x", .scale = 0.5f}};
  const std::vector<int32_t> ids{3};
  Json told = generation_settings(call, ids);
  EXPECT_EQ(told["logit_bias"].dump(), R"([{"bias":1.5,"token":65}])");
  EXPECT_EQ(told["grammar"], "root ::= \"a\"");
  EXPECT_EQ(told["lora"].dump(), R"([{"id":3,"name":"x","scale":0.5}])");
  EXPECT_EQ(told["n_predict"], 16);
  call.request.sampling.logit_bias.assign(5000, {65, 1.5f});
  call.request.structured_output.text = std::string(1 << 17, 'x');
  told = generation_settings(call, ids);
  EXPECT_TRUE(told["logit_bias"].is_null());
  EXPECT_TRUE(told["grammar"].is_null());
}

TEST(NativeSchemas, AreJson) {
  for (const auto& schema : {native_schema(), infill_schema(), native_embedding_schema()})
    EXPECT_EQ(Json::parse(schema, nullptr, false)["type"], "object") << schema;
}

// A vocabulary of bytes, in which 256 begins a text and 300 to 305 are special.
class Bytes final : public Vocabulary {
 public:
  Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens, size_t most_tokens,
                                        bool parse_special) const override {
    if (text.size() > most_tokens) return too_large("too many");
    Ids ids;
    if (add_special_tokens) ids.push_back(256);
    if (parse_special && !text.empty()) ids.push_back(-1);  // which nobody may ask for here
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string detokenize(const std::vector<int32_t>&, bool) const override { return ""; }
  std::string token_text(int32_t) const override { return ""; }
  std::string token_bytes(int32_t) const override { return ""; }
  int64_t size() const override { return 400; }
};

TEST(FillPrompt, StandsInTheOrderThatModelsLearn) {
  const FillTokens tokens{.prefix = 300, .suffix = 301, .middle = 302, .pad = 303, .repository = 304, .file = 305};
  const Gap gap{.before = "a", .behind = "b", .begun = "c", .files = {{.name = "f", .text = "t"}}};
  const auto ids = fill_prompt(gap, tokens, Bytes(), 100);
  ASSERT_TRUE(ids.ok()) << ids.status().to_string();
  EXPECT_THAT(*ids, ElementsAre(256, 304, 'm', 'y', 'p', 'r', 'o', 'j', 'e', 'c', 't', '\n', 305, 'f', '\n', 't', 305, 'f', 'i',
                                'l', 'e', 'n', 'a', 'm', 'e', '\n', 300, 'a', 301, 'b', 302, 'c'));
  const FillTokens without{.prefix = 300, .suffix = 301, .middle = 302};
  EXPECT_THAT(*fill_prompt(gap, without, Bytes(), 100), ElementsAre(256, 't', 300, 'a', 301, 'b', 302, 'c'));
  const Gap of_ids{.before = Ids{7, 8}, .behind = "b", .begun = "", .files = {}};
  EXPECT_THAT(*fill_prompt(of_ids, tokens, Bytes(), 100), ElementsAre(256, 300, 7, 8, 301, 'b', 302));
}

TEST(FillPrompt, SaysWhatAModelLacks) {
  const auto none = fill_prompt({}, {}, Bytes(), 100);
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
  EXPECT_THAT(none.status().message(), HasSubstr("<|fim_prefix|>"));
  const FillTokens tokens{.prefix = 300, .suffix = 301, .middle = 302};
  EXPECT_EQ(fill_prompt({.before = "long", .behind = "", .begun = "", .files = {}}, tokens, Bytes(), 3).status().code(),
            Code::kTooLarge);
}

TEST(FillStops, AreWhatBeginsSomethingElse) {
  const FillTokens tokens{.prefix = 300, .suffix = 301, .middle = 302, .pad = 303, .file = 305};
  SamplingParams sampling;
  add_fill_stops(tokens, sampling);
  EXPECT_THAT(sampling.stop_token_ids, ElementsAre(303, 305));
  SamplingParams endless{.ignore_eos = true};
  add_fill_stops(tokens, endless);
  EXPECT_THAT(endless.stop_token_ids, ElementsAre());
}

}  // namespace
}  // namespace choral::serve
