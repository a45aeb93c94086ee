// Schemas that our own automaton serves: which they are, what it takes and keeps out, that whatever is sampled parses and keeps
// the schema, however wide that is, and, where the library is, that both accept the same.
#include "text/grammar/plain_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/allocation_counter.h"
#include "support/temp_dir.h"
#include "text/grammar/sampled_answer_test.h"

namespace choral::text {
namespace {

using Kind = StructuredOutput::Kind;
using Json = nlohmann::json;

constexpr const char* kPerson = R"({
  "type": "object",
  "title": "Person",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 8, "description": "the name"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "kind": {"enum": ["cat", "dog", "caterpillar", 7, 77, null]},
    "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 3},
    "home": {"type": "object", "properties": {"zip": {"type": "integer"}, "city": {"type": "string"}}},
    "note": {"anyOf": [{"type": "string", "maxLength": 70}, {"type": "null"}], "default": null},
    "size": {"type": ["number", "null"]},
    "free": {}
  },
  "required": ["name", "tags", "note"],
  "additionalProperties": false,
  "$defs": {"tag": {"type": "object", "properties": {"ok": {"type": "boolean"}, "v": {"const": "x\"y"}}, "required": ["ok", "v"]}}
})";

class PlainSchema : public ::testing::Test {
 protected:
  void SetUp() override { use("qwen2"); }
  void use(const std::string& name) {
    static const testing::TempDir* const empty = new testing::TempDir();
    tokenizer_ = test_tokenizer(name);
    end_id_ = tokenizer_->eos_id().value();
    compiler_ = *make_grammar_compiler(*tokenizer_, {end_id_}, {empty->path(), {}});  // without the library
  }
  std::shared_ptr<const Grammar> compile(const std::string& schema) {
    auto grammar = compiler_->compile({Kind::kJsonSchema, schema, {}});
    EXPECT_TRUE(grammar.ok()) << schema << ": " << grammar.status().to_string();
    return grammar.ok() ? *grammar : nullptr;
  }
  bool takes(const std::string& schema, std::string_view text) {
    const auto grammar = compile(schema);
    return grammar && takes_tokens(*grammar, *tokenizer_, byte_tokens(*tokenizer_, text)) &&
           takes_tokens(*grammar, *tokenizer_, *tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = false}));
  }

  std::mt19937 random_{7};
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
  int32_t end_id_ = 0;
};

void expect_person(const Json& person, const std::string& text) {
  ASSERT_TRUE(person.is_object()) << text;
  const auto characters = [](const Json& value) {
    const std::string bytes = value.get<std::string>();
    return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  ASSERT_TRUE(person.contains("name") && person.contains("tags") && person.contains("note")) << text;
  EXPECT_TRUE(characters(person["name"]) >= 1 && characters(person["name"]) <= 8) << text;
  EXPECT_TRUE(person["tags"].size() >= 1 && person["tags"].size() <= 3) << text;
  for (const Json& tag : person["tags"]) EXPECT_TRUE(tag.size() == 2 && tag["ok"].is_boolean() && tag["v"] == "x\"y") << text;
  EXPECT_TRUE(person["note"].is_null() || characters(person["note"]) <= 70) << text;
  for (const auto& [key, value] : person.items()) {
    if (key == "age") {
      EXPECT_TRUE(value.is_number_integer() && value >= 0 && value <= 150) << text;
    } else if (key == "kind") {
      EXPECT_THAT((std::vector<Json>{"cat", "dog", "caterpillar", 7, 77, nullptr}), ::testing::Contains(value)) << text;
    } else if (key == "size") {
      EXPECT_TRUE(value.is_number() || value.is_null()) << text;
    } else {
      EXPECT_THAT((std::vector<std::string>{"name", "tags", "note", "home", "free"}), ::testing::Contains(key)) << text;
    }
  }
}

TEST_F(PlainSchema, WhateverIsSampledParsesAndKeepsIt) {
  for (const char* name : {"qwen2", "llama2", "deepseek"}) {
    use(name);
    const auto grammar = compile(kPerson);
    ASSERT_NE(grammar, nullptr);
    int ended = 0;
    for (int round = 0; round < 60; ++round) {
      const auto text = sample(**grammar->matcher(), *tokenizer_, end_id_, random_, round);
      if (!text) continue;
      ++ended;
      expect_person(Json::parse(*text, nullptr, false), *text);
    }
    EXPECT_GT(ended, 40) << name;
  }
}

TEST_F(PlainSchema, TakesWhatTheSchemaSaysAndNothingElse) {
  const std::string tag = R"({"ok": true, "v": "x\"y"})";
  EXPECT_TRUE(takes(kPerson, R"({"name": "Ada", "age": 36, "kind": "cat", "tags": [)" + tag + R"(], "note": null})"));
  EXPECT_TRUE(takes(kPerson, "{\n  \"name\":\"Gr\\u00fc\xc3\x9f\xf0\x9f\x98\x80\",\"kind\":77,\"tags\":[" + tag + "," + tag +
                                 "],\"home\":{},\"note\":\"\",\"size\":-1.5e3,\"free\":{\"a\":[1,{}]}\n}"));
  EXPECT_FALSE(takes(kPerson, R"({"name": "", "tags": [)" + tag + R"(], "note": null})")) << "minLength";
  EXPECT_FALSE(takes(kPerson, R"({"name": "123456789", "tags": [)" + tag + R"(], "note": null})")) << "maxLength";
  EXPECT_FALSE(takes(kPerson, R"({"name": "A", "tags": [], "note": null})")) << "minItems";
  EXPECT_FALSE(takes(kPerson, R"({"name": "A", "tags": [)" + tag + R"(]})")) << "note is missing";
  EXPECT_FALSE(takes(kPerson, R"({"tags": [)" + tag + R"(], "name": "A", "note": null})")) << "order";
  EXPECT_FALSE(takes(kPerson, R"({"name": "A", "name": "A", "tags": [)" + tag + R"(], "note": null})")) << "twice";
  EXPECT_FALSE(takes(kPerson, R"({"name": "A", "nama": 1)"));
  EXPECT_FALSE(takes(kPerson, R"( {"name": "A", "tags": [)" + tag + R"(], "note": null})"));
  EXPECT_FALSE(takes(kPerson, R"({"name": "A", "tags": [)" + tag + R"(], "note": null} )"));
}

TEST_F(PlainSchema, NumbersKeepTheirBounds) {
  const auto integer = [](const std::string& bounds) { return R"({"type":"array","items":{"type":"integer",)" + bounds + "}}"; };
  const GrammarVocabulary vocabulary(*tokenizer_, {});
  const auto tokens =
      std::make_shared<const JsonTokens>(vocabulary, std::make_shared<const TokenTrie>(vocabulary, vocabulary.text_ids()));
  for (int least = -120; least <= 120; least += 7) {
    for (const int most : {least, least + 1, least + 13, least + 150}) {
      const auto automaton = read_plain_schema(integer(fmt::format(R"("minimum":{},"maximum":{})", least, most)), tokens);
      ASSERT_NE(automaton, nullptr);
      for (int value = least - 3; value <= most + 3; ++value) {
        auto state = automaton->start();
        bool fits = true;
        for (const char c : fmt::format("[{}]", value)) fits = fits && automaton->step(state, static_cast<uint8_t>(c));
        ASSERT_EQ(fits, value >= least && value <= most) << least << " to " << most << ": " << value;
      }
    }
  }
  EXPECT_TRUE(takes(integer(R"("minimum":0)"), "[12345678901234567890123]"));
  EXPECT_FALSE(takes(integer(R"("minimum":0)"), "[-1]"));
  EXPECT_TRUE(takes(integer(R"("exclusiveMinimum":1.5,"exclusiveMaximum":3)"), "[2]"));
  EXPECT_FALSE(takes(integer(R"("exclusiveMinimum":1.5,"exclusiveMaximum":3)"), "[3]"));
  for (const char* bad : {"[01]", "[-0]", "[1.0]", "[1e2]", "[-]", "[1234567890123456789012345]"})
    EXPECT_FALSE(takes(integer(R"("title":"t")"), bad)) << bad;
  EXPECT_TRUE(takes(R"({"type":"integer"})", "-12")) << "at the top, where only the end tells that it is over";
  EXPECT_TRUE(takes(R"({"enum":[1,12,"a"]})", "1"));
  EXPECT_TRUE(takes(R"({"enum":[1,12,"a"]})", "12"));
  EXPECT_FALSE(takes(R"({"enum":[1,12,"a"]})", "123"));
}

TEST_F(PlainSchema, CharactersAreCountedNotBytesOrEscapes) {
  const std::string schema = R"({"type":"string","minLength":3,"maxLength":3})";
  for (const char* text : {R"("abc")", "\"a\xf0\x9f\x98\x80\xc3\xa9\"", R"("\n\\\u00e9")", R"("\ud83d\ude00ab")"})
    EXPECT_TRUE(takes(schema, text)) << text;
  for (const char* text : {R"("ab")", R"("abcd")", "\"a\xf0\x9f\x98\x80\"", R"("\ud83d\ude00")", R"("\n\\\u00e9a")"})
    EXPECT_FALSE(takes(schema, text)) << text;
}

// The masks that are known beforehand are those that a walk over all tokens finds.
TEST_F(PlainSchema, MasksSayWhatIsAccepted) {
  for (const char* name : {"qwen2", "deepseek"}) {
    use(name);
    for (const int most : {0, 1, 3, 47, 48, 49, 100, 300}) {
      const auto grammar = compile(fmt::format(R"({{"type":"string","minLength":1,"maxLength":{}}})", std::max(most, 1)));
      const auto ids = byte_tokens(*tokenizer_, "\"ab");
      for (size_t written = 0; written <= ids.size(); ++written) {
        auto matcher = *grammar->matcher();
        bool fits = true;
        for (size_t i = 0; i < written; ++i) fits = fits && matcher->accept(ids[i]);
        if (!fits) break;
        const auto words = mask_of(*matcher, *tokenizer_);
        for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
          auto other = *grammar->matcher();
          for (size_t i = 0; i < written; ++i) ASSERT_TRUE(other->accept(ids[i]));
          ASSERT_EQ(has(words, id), other->accept(id)) << name << most << tokenizer_->token_bytes(id);
        }
      }
    }
  }
}

TEST_F(PlainSchema, WidthCostsNothing) {
  Json schema{{"type", "object"}};
  for (int i = 0; i < 600; ++i) {
    const std::string name = fmt::format("property_{}", i);
    schema["properties"][name] = {{"type", "string"}, {"maxLength", 20 + i}};
    if (i % 2 == 0) schema["required"].push_back(name);
  }
  const auto grammar = compile(schema.dump());  // in an order of its own
  ASSERT_NE(grammar, nullptr);
  int ended = 0;
  for (int round = 0; round < 2; ++round) {
    const auto text = sample(**grammar->matcher(), *tokenizer_, end_id_, random_, 0, 50000);
    if (!text) continue;
    ++ended;
    const Json json = Json::parse(*text, nullptr, false);
    EXPECT_GE(json.size(), 300U);
  }
  EXPECT_GT(ended, 0);
}

TEST_F(PlainSchema, OthersAreTheLibrarys) {
  for (const char* schema :
       {R"({"type":"string","pattern":"a"})", R"({"type":"string","format":"date"})", R"({"type":"number","minimum":1})",
        R"({"type":"object"})", R"({"type":"object","properties":{"a":{}},"additionalProperties":true})",
        R"({"type":"object","properties":{"a":{}},"required":["b"]})", R"({"type":"array"})", R"({"enum":[1.5]})",
        R"({"enum":[[1]]})", R"({"anyOf":[{"type":"integer"},{"type":"number"}]})", R"({"allOf":[{"type":"integer"}]})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}}})", R"({"type":"object","properties":{"a":false}})",
        R"({"type":"string","minLength":3,"maxLength":2})", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"type":"string","const":"a","minLength":3})", R"({"minLength":3})",
        R"({"type":"object","properties":{"a":{},"a":{}}})"}) {
    EXPECT_EQ(compiler_->compile({Kind::kJsonSchema, schema, {}}).status().code(), Code::kUnsupported) << schema;
  }
  std::string deep = R"({"type":"integer"})";
  for (int i = 0; i < 20; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_EQ(compiler_->compile({Kind::kJsonSchema, deep, {}}).status().code(), Code::kUnsupported);
  Json chain{{"$ref", "#/$defs/a0"}};  // each leads to the next, without depth in the text
  for (int i = 0; i < 3000; ++i) {
    chain["$defs"][fmt::format("a{}", i)] = {{"type", "array"}, {"items", {{"$ref", fmt::format("#/$defs/a{}", i + 1)}}}};
  }
  chain["$defs"]["a3000"] = {{"type", "integer"}};
  EXPECT_EQ(compiler_->compile({Kind::kJsonSchema, chain.dump(), {}}).status().code(), Code::kUnsupported);
}

TEST_F(PlainSchema, AMaskAllocatesNothing) {
  auto matcher = *compile(kPerson)->matcher();
  std::vector<uint32_t> words((static_cast<size_t>(tokenizer_->vocab_size()) + 31) / 32);
  const auto ids = byte_tokens(*tokenizer_, R"({"name": "A)");
  const auto counted = testing::count_allocations([&] {
    for (const int32_t id : ids) {
      matcher->fill_mask(words);
      matcher->accept(id);
    }
  });
  EXPECT_EQ(counted.allocations, 0);
  EXPECT_TRUE(matcher->is_bounded());
}

// The library bounds white space in a row only where it is told to.
bool has_long_white_space(const std::string& text) {
  size_t run = 0;
  for (const char c : text) {
    run = std::string_view(" \t\n\r").find(c) == std::string_view::npos ? 0 : run + 1;
    if (run > SchemaAutomaton::kMostWhiteSpace) return true;
  }
  return false;
}

// Inside a structural tag a schema goes to the library.
TEST_F(PlainSchema, AcceptsWhatTheLibraryAccepts) {
  if (!std::getenv("CHORAL_XGRAMMAR")) GTEST_SKIP() << "CHORAL_XGRAMMAR names no folder with xgrammar";
  const auto library = *make_grammar_compiler(*tokenizer_, {end_id_}, {{}, {.max_compile_s = 300}});
  for (const std::string& schema :
       std::vector<std::string>{kPerson, R"({"properties":{"a":{"type":"boolean"},"b":{"type":["string","null"]}}})",
                                R"({"type":"array","items":{"type":"integer","minimum":-20,"maximum":300}})"}) {
    const auto own = compile(schema);
    const auto tag = library->compile(
        {Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":)" + schema + "}}", {}});
    ASSERT_TRUE(tag.ok()) << tag.status().to_string();
    int compared = 0;
    for (int round = 0; round < 30; ++round) {
      if (const auto text = sample(**own->matcher(), *tokenizer_, end_id_, random_, round)) {
        ++compared;
        EXPECT_TRUE(takes_tokens(**tag, *tokenizer_, byte_tokens(*tokenizer_, *text))) << *text;
      }
      if (const auto text = sample(**(*tag)->matcher(), *tokenizer_, end_id_, random_, round);
          text && Json::accept(*text) && !has_long_white_space(*text)) {
        ++compared;
        EXPECT_TRUE(takes_tokens(*own, *tokenizer_, byte_tokens(*tokenizer_, *text))) << *text;
      }
    }
    EXPECT_GT(compared, 10);
  }
}

}  // namespace
}  // namespace choral::text
