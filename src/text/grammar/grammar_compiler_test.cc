// JSON objects and choices over real vocabularies, without the library: what masks let through, and what they keep out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/allocation_counter.h"
#include "support/temp_dir.h"
#include "text/grammar/sampled_answer_test.h"

namespace choral::text {
namespace {

using Kind = StructuredOutput::Kind;
using ::testing::HasSubstr;

// byte-level BPE, BPE with <0xNN> tokens, and one with long runs of white space.
const std::vector<std::string> kTokenizers = {"qwen2", "llama2", "deepseek"};

struct Made {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<GrammarCompiler> compiler;
  int32_t end_id = 0;
};
Made make(const std::string& name, GrammarLimits limits = {}) {
  // An empty folder: the library stays out of these tests even where it is installed.
  static const testing::TempDir* const empty = new testing::TempDir();
  Made made{test_tokenizer(name), nullptr, 0};
  made.end_id = made.tokenizer->eos_id().value_or(0);
  auto compiler = make_grammar_compiler(*made.tokenizer, {made.end_id, made.end_id, -1, 1 << 30}, {empty->path(), limits});
  EXPECT_TRUE(compiler.ok()) << compiler.status().to_string();
  made.compiler = std::move(*compiler);
  return made;
}
std::shared_ptr<const Grammar> compile(const Made& made, const StructuredOutput& wanted) {
  auto grammar = made.compiler->compile(wanted);
  EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
  return grammar.ok() ? *grammar : nullptr;
}
StructuredOutput choices(std::vector<std::string> texts) { return {Kind::kChoice, "", std::move(texts)}; }
const StructuredOutput kJsonObject{Kind::kJsonObject, "", {}};

TEST(JsonObjectGrammar, WhateverIsSampledIsJson) {
  std::mt19937 random(11);
  for (const std::string& name : kTokenizers) {
    const Made made = make(name);
    const auto grammar = compile(made, kJsonObject);
    int ended = 0;
    for (int round = 0; round < 60; ++round) {
      auto matcher = grammar->matcher();
      const auto text = sample(**matcher, *made.tokenizer, made.end_id, random, 2 + round);
      if (!text) continue;
      ++ended;
      EXPECT_TRUE(nlohmann::json::accept(*text)) << name << ": " << *text;
    }
    EXPECT_GT(ended, 50) << name;
  }
}

TEST(JsonObjectGrammar, EveryJsonObjectIsAccepted) {
  const std::vector<std::string> texts = {
      "{}", R"({"name": "Ada", "age": 36, "tags": ["a", "b"], "more": {"x": null, "y": [true, false, -1.5e3]}})",
      "{\n    \"deep\": [\n        [\n            {\n                \"a\": {}\n            }\n        ]\n    ]\n}",
      R"({"escapes": "\"\\\/\b\f\n\r\t\u0041\ud83d\ude00", "unicode": "grüße 你好 😀 \u00e9", "": ""})",
      R"({"a":[[],{},"",0,-0,1.25,1E2,{"b":[]}],"a":"twice"})"};
  for (const std::string& name : kTokenizers) {
    const Made made = make(name);
    const auto grammar = compile(made, kJsonObject);
    for (const std::string& text : texts) {
      ASSERT_TRUE(nlohmann::json::accept(text)) << text;
      const auto ids = made.tokenizer->encode(text, {.add_special_tokens = false});
      EXPECT_TRUE(takes_tokens(*grammar, *made.tokenizer, *ids)) << name << ": " << text;
    }
  }
}

TEST(JsonObjectGrammar, ACharacterMayComeInPieces) {
  const Made made = make("qwen2");
  const auto grammar = compile(made, kJsonObject);
  const std::string text = "{\"é\":\"😀\"}";
  const auto ids = byte_tokens(*made.tokenizer, text);
  ASSERT_EQ(ids.size(), text.size());
  EXPECT_TRUE(takes_tokens(*grammar, *made.tokenizer, ids));
  // Inside a character nothing but its next byte fits: no quote, no end.
  auto matcher = *grammar->matcher();
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(matcher->accept(ids[i]));
  for (const int32_t id : ids_in(mask_of(*matcher, *made.tokenizer))) {
    EXPECT_EQ(static_cast<uint8_t>(made.tokenizer->token_bytes(id)[0]) & 0xC0, 0x80);
  }
}

TEST(JsonObjectGrammar, OnlyTheEndFollowsTheLastBrace) {
  const Made made = make("qwen2");
  auto matcher = *compile(made, kJsonObject)->matcher();
  EXPECT_FALSE(matcher->complete());
  EXPECT_FALSE(matcher->accept(made.end_id));
  for (const int32_t id : byte_tokens(*made.tokenizer, "{}")) ASSERT_TRUE(matcher->accept(id));
  EXPECT_TRUE(matcher->complete());
  EXPECT_EQ(ids_in(mask_of(*matcher, *made.tokenizer)), std::vector<int32_t>{made.end_id});
  EXPECT_TRUE(matcher->accept(made.end_id));
  EXPECT_TRUE(matcher->accept(made.end_id));
}

TEST(JsonObjectGrammar, TheDepthIsBounded) {
  const Made made = make("qwen2", {.max_depth = 3});
  const auto grammar = compile(made, kJsonObject);
  EXPECT_TRUE(takes_tokens(*grammar, *made.tokenizer, byte_tokens(*made.tokenizer, R"({"a":[[1]]})")));
  EXPECT_FALSE(takes_tokens(*grammar, *made.tokenizer, byte_tokens(*made.tokenizer, R"({"a":[[[1]]]})")));
}

TEST(GrammarMask, HasAnySizeThatARowHas) {
  const Made made = make("qwen2");
  auto matcher = *compile(made, kJsonObject)->matcher();
  const auto exact = mask_of(*matcher, *made.tokenizer);
  std::vector<uint32_t> padded(exact.size() + 10, ~0u), cut(exact.size() / 2, ~0u);
  matcher->fill_mask(padded);
  matcher->fill_mask(cut);
  EXPECT_TRUE(std::equal(exact.begin(), exact.end(), padded.begin()));
  EXPECT_TRUE(
      std::all_of(padded.begin() + static_cast<std::ptrdiff_t>(exact.size()), padded.end(), [](uint32_t w) { return w == 0; }));
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), exact.begin()));
  EXPECT_FALSE(matcher->accept(-1));
  EXPECT_FALSE(matcher->accept(made.tokenizer->vocab_size()));
}

TEST(GrammarMask, SpecialTokensNeverCountAsText) {
  const Made made = make("qwen2");
  int special = 0;
  auto matcher = *compile(made, kJsonObject)->matcher();
  for (const int32_t id : byte_tokens(*made.tokenizer, "{\"")) ASSERT_TRUE(matcher->accept(id));
  const auto in_string = mask_of(*matcher, *made.tokenizer);
  for (int32_t id = 0; id < made.tokenizer->vocab_size(); ++id) {
    if (!made.tokenizer->is_special(id)) continue;
    ++special;
    EXPECT_FALSE(has(in_string, id)) << *made.tokenizer->id_to_token(id);
    EXPECT_FALSE(matcher->accept(id));
  }
  EXPECT_GT(special, 0);
}

TEST(GrammarMask, AllocatesNothing) {
  const Made made = make("qwen2");
  const auto json = compile(made, kJsonObject);
  const auto choice = compile(made, choices({"yes", "no"}));
  for (const auto& grammar : {json, choice}) {
    auto matcher = *grammar->matcher();
    std::vector<uint32_t> words((static_cast<size_t>(made.tokenizer->vocab_size()) + 31) / 32);
    const int32_t first = byte_tokens(*made.tokenizer, grammar == json ? "{" : "y")[0];
    EXPECT_EQ(testing::count_allocations([&] {
                matcher->fill_mask(words);
                matcher->accept(first);
                matcher->fill_mask(words);
              }).allocations,
              0);
  }
}

TEST(ChoiceGrammar, GivesEachChoiceAndNothingElse) {
  std::mt19937 random(5);
  const std::vector<std::string> texts = {"yes", "no", "no, never", "nö", "你好", "a\nb", " yes"};
  for (const std::string& name : {std::string("qwen2"), std::string("deepseek")}) {
    const Made made = make(name);
    const auto grammar = compile(made, choices(texts));
    std::map<std::string, int> seen;
    for (int round = 0; round < 400; ++round) {
      auto matcher = grammar->matcher();
      const auto text = sample(**matcher, *made.tokenizer, made.end_id, random, static_cast<int>(random() % 8));
      ASSERT_TRUE(text) << name;
      ++seen[*text];
    }
    EXPECT_EQ(seen.size(), texts.size()) << name;
    for (const auto& [text, count] : seen) EXPECT_THAT(texts, ::testing::Contains(text));
    for (const std::string& text : texts) {
      const auto ids = made.tokenizer->encode(text, {.add_special_tokens = false});
      EXPECT_TRUE(takes_tokens(*grammar, *made.tokenizer, *ids)) << name << ": " << text;
    }
  }
}

TEST(ChoiceGrammar, APrefixMayEndOrGoOn) {
  const Made made = make("qwen2");
  auto matcher = *compile(made, choices({"ab", "abc", "abc"}))->matcher();
  const auto ids = byte_tokens(*made.tokenizer, "abc");
  ASSERT_TRUE(matcher->accept(ids[0]) && !matcher->complete());
  ASSERT_TRUE(matcher->accept(ids[1]));
  EXPECT_TRUE(matcher->complete());
  auto words = mask_of(*matcher, *made.tokenizer);
  EXPECT_TRUE(has(words, made.end_id));
  EXPECT_TRUE(has(words, ids[2]));
  EXPECT_EQ(ids_in(words).size(), 2u);
  ASSERT_TRUE(matcher->accept(ids[2]));
  EXPECT_EQ(ids_in(mask_of(*matcher, *made.tokenizer)), std::vector<int32_t>{made.end_id});
}

TEST(ChoiceGrammar, RefusesWhatItCannotServe) {
  const Made made = make("qwen2", {.max_choices = 3, .max_choices_bytes = 10});
  const auto code = [&](std::vector<std::string> texts) {
    return made.compiler->compile(choices(std::move(texts))).status().code();
  };
  EXPECT_EQ(code({}), Code::kInvalidArgument);
  EXPECT_EQ(code({"a", ""}), Code::kInvalidArgument);
  EXPECT_EQ(code({"a\xff"}), Code::kInvalidArgument);
  EXPECT_EQ(code({"a", "b", "c", "d"}), Code::kTooLarge);
  EXPECT_EQ(code({"abcdef", "abcdeg"}), Code::kTooLarge);
}

TEST(GrammarCompiler, WithoutTheLibrarySaysWhatToInstall) {
  const Made made = make("qwen2");
  EXPECT_EQ(made.compiler->compile({}).status().code(), Code::kInvalidArgument);
  for (const StructuredOutput& wanted :
       {StructuredOutput{Kind::kJsonSchema, R"({"type":"string","pattern":"a"})", {}}, StructuredOutput{Kind::kRegex, "a+", {}},
        StructuredOutput{Kind::kGrammar, "root ::= \"a\"", {}}, StructuredOutput{Kind::kStructuralTag, "{}", {}}}) {
    const Status status = made.compiler->compile(wanted).status();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("pip install --no-deps xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2"));
    EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("/")));  // no folder of this machine
  }
  EXPECT_EQ(made.compiler->library_status().code(), Code::kUnsupported);
  EXPECT_THAT(made.compiler->library_status().message(), HasSubstr("holds no xgrammar"));
  // What is broken is said first: installing would not help.
  EXPECT_EQ(made.compiler->compile({Kind::kRegex, "foo**", {}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(made.compiler->compile({Kind::kJsonSchema, "{", {}}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace choral::text
