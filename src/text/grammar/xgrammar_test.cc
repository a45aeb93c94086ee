// Schemas, regular expressions, grammars and structural tags through the library, where CHORAL_XGRAMMAR names its folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/temp_dir.h"
#include "text/grammar/look_ahead_test.h"
#include "text/grammar/sampled_answer_test.h"
#include "text/grammar/xgrammar_finder.h"

namespace choral::text {
namespace {

using Kind = StructuredOutput::Kind;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Xgrammar : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("CHORAL_XGRAMMAR")) GTEST_SKIP() << "CHORAL_XGRAMMAR names no folder with xgrammar";
    use("qwen2");
  }
  void use(const std::string& name) {
    GrammarLimits limits;
    limits.max_compile_s = 300;  // of a loaded machine
    tokenizer_ = test_tokenizer(name);
    end_id_ = tokenizer_->eos_id().value();
    auto compiler = make_grammar_compiler(*tokenizer_, {end_id_}, {{}, limits});
    ASSERT_TRUE(compiler.ok()) << compiler.status().to_string();
    compiler_ = std::move(*compiler);
    ASSERT_TRUE(compiler_->library_status().ok()) << compiler_->library_status().to_string();
  }
  std::shared_ptr<const Grammar> compile(Kind kind, std::string text) {
    auto grammar = compiler_->compile({kind, std::move(text), {}});
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    if (!grammar.ok()) return nullptr;
    EXPECT_FALSE((*(*grammar)->matcher())->is_bounded()) << "an automaton of our own serves it";
    return *grammar;
  }
  Status refuse(Kind kind, std::string text) { return compiler_->compile({kind, std::move(text), {}}).status(); }
  std::optional<std::string> answer(const Grammar& grammar, int random_tokens) {
    return sample(**grammar.matcher(), *tokenizer_, end_id_, random_, random_tokens);
  }
  bool takes(const Grammar& grammar, std::string_view text) {
    return takes_tokens(grammar, *tokenizer_, *tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = false}));
  }

  std::mt19937 random_{3};
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
  int32_t end_id_ = 0;
};

constexpr const char* kPersonSchema =
    R"({"type":"object","properties":{"name":{"type":"string","pattern":"^[A-Z][a-z]{0,7}$"},
        "age":{"type":"integer","minimum":0,"maximum":150},"kind":{"enum":["cat","dog"]},"tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},
        "required":["name","age","kind","tags"],"additionalProperties":false})";

TEST_F(Xgrammar, AnswersKeepTheSchema) {
  for (const char* name : {"qwen2", "llama2", "deepseek"}) {
    use(name);
    const auto grammar = compile(Kind::kJsonSchema, kPersonSchema);
    ASSERT_NE(grammar, nullptr);
    int ended = 0;
    for (int round = 0; round < 30; ++round) {
      const auto text = answer(*grammar, round);
      if (!text) continue;
      ++ended;
      const Json json = Json::parse(*text, nullptr, false);
      ASSERT_TRUE(json.is_object()) << Json(*text).dump(-1, ' ', true, Json::error_handler_t::replace);
      EXPECT_TRUE(json.size() == 4 && json["name"].is_string() && json["age"].is_number_integer() && json["tags"].is_array())
          << *text;
      EXPECT_TRUE(json["age"] >= 0 && json["age"] <= 150) << *text;
      EXPECT_TRUE(json["kind"] == "cat" || json["kind"] == "dog") << *text;
    }
    EXPECT_GT(ended, 20) << name;
    if (name == std::string("llama2")) continue;  // its encoder begins every text with a space
    EXPECT_TRUE(takes(*grammar, R"({"name": "Ada", "age": 36, "kind": "cat", "tags": [true]})"));
    EXPECT_FALSE(takes(*grammar, R"({"name": "Ada", "age": 151, "kind": "cat", "tags": []})"));
    EXPECT_FALSE(takes(*grammar, R"({"name": "Ada"})"));
  }
}

// The library's own masks let control characters and quotes into such strings.
TEST_F(Xgrammar, AnswersAreJsonWhateverAPatternAllows) {
  for (const char* schema : {R"({"type":"string","pattern":".*"})", R"({"allOf":[{"type":"string","maxLength":30}]})",
                             R"({"type":"string","pattern":"[^a]{3,}"})",
                             R"({"allOf":[{"type":"array","items":{"type":"string","minLength":2,"maxLength":5},"minItems":2}]})",
                             R"({"type":"number","minimum":0})", R"({"type":"object","additionalProperties":true})"}) {
    const auto grammar = compile(Kind::kJsonSchema, schema);
    ASSERT_NE(grammar, nullptr);
    for (int round = 0; round < 20; ++round) {
      const auto text = answer(*grammar, round);
      EXPECT_TRUE(!text || Json::accept(*text)) << schema << *text;
    }
  }
}

TEST_F(Xgrammar, RecursiveSchemas) {
  const auto grammar = compile(
      Kind::kJsonSchema,
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}}})");
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(takes(*grammar, R"({"v": 1, "next": {"v": 2, "next": null}})"));
  EXPECT_FALSE(takes(*grammar, R"({"v": 1, "next": 2})"));
}

TEST_F(Xgrammar, RegularExpressionsAndGrammars) {
  const auto date = compile(Kind::kRegex, R"(\d{4}-(0[1-9]|1[0-2])-\d{2})");
  ASSERT_NE(date, nullptr);
  EXPECT_TRUE(takes(*date, "2026-11-23"));
  EXPECT_FALSE(takes(*date, "2026-13-23"));
  EXPECT_FALSE(takes(*date, "2026-11-2"));
  const auto sum = compile(Kind::kGrammar, "root ::= term (\" + \" term)*\nterm ::= [0-9]+ | \"(\" root \")\"\n");
  ASSERT_NE(sum, nullptr);
  EXPECT_TRUE(takes(*sum, "1 + (22 + 3)"));
  EXPECT_FALSE(takes(*sum, "1 + (22 + 3"));
}

constexpr const char* kTag =
    R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<tool_call>"],"tags":[{"type":"tag","begin":"<tool_call>\n{\"name\": \"f\", \"arguments\": ","content":{"type":"json_schema","json_schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}},"end":"}\n</tool_call>"}]}})";

TEST_F(Xgrammar, StructuralTags) {
  const auto grammar = compile(Kind::kStructuralTag, kTag);
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(takes(*grammar, "just text"));
  EXPECT_TRUE(takes(*grammar, "I call <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call> done"));
  EXPECT_FALSE(takes(*grammar, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"1\"}}\n</tool_call>"));
  EXPECT_FALSE(takes(*grammar, "<tool_call>\n{\"name\": \"g\""));
}

TEST_F(Xgrammar, ATagMayNameSpecialTokens) {
  use("deepseek");
  const auto marker = tokenizer_->token_to_id("<｜tool▁calls▁begin｜>");
  ASSERT_TRUE(marker.has_value());
  const auto other = tokenizer_->token_to_id("<｜User｜>");
  ASSERT_TRUE(other.has_value());
  std::string tag = kTag;
  for (size_t at = 0; (at = tag.find("<tool_call>", at)) != std::string::npos;) tag.replace(at, 11, "<｜tool▁calls▁begin｜>");
  const auto free_text = compile(Kind::kStructuralTag, tag);
  ASSERT_NE(free_text, nullptr);
  auto matcher = *free_text->matcher();
  const auto words = mask_of(*matcher, *tokenizer_);
  EXPECT_TRUE(has(words, *marker) || !tokenizer_->is_special(*marker));
  EXPECT_FALSE(tokenizer_->is_special(*other) && has(words, *other));
  EXPECT_TRUE(matcher->accept(*marker));
  // For all other kinds no special token is text.
  auto plain = *compile(Kind::kRegex, ".*")->matcher();
  const auto any = mask_of(*plain, *tokenizer_);
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    EXPECT_FALSE(tokenizer_->is_special(id) && id != end_id_ && has(any, id)) << id;
  }
}

TEST_F(Xgrammar, HostileWishesAreRefusedInTime) {
  const auto bad = [this](Kind kind, const std::string& text) {
    const Status status = refuse(kind, text);
    EXPECT_THAT(status.code(), AnyOf(Code::kInvalidArgument, Code::kTooLarge, Code::kUnsupported, Code::kDeadlineExceeded,
                                     Code::kResourceExhausted))
        << text.substr(0, 100) << ": " << status.to_string();
    EXPECT_THAT(status.message(), Not(AnyOf(HasSubstr(".cc:"), HasSubstr("0x"))));
  };
  for (const char* pattern : {"foo**", "(", "[b-a]", "(?=a)b", "\\1", "a{3,1}", "(?i)a", "\\p{L}"}) bad(Kind::kRegex, pattern);
  for (const char* schema :
       {R"({"type":"object","properties":{"a":{"pattern":"foo**"}}})", R"({"$ref":"#"})", R"({"anyOf":[{"$ref":"#"}]})",
        R"({"allOf":[{"$ref":"#"}]})", R"({"minLength":5,"maxLength":2,"type":"string"})",
        R"({"type":"object","properties":{"a":{"type":"xyz"}}})"}) {
    bad(Kind::kJsonSchema, schema);
  }
  for (const char* grammar : {"", "root ::= ", "a ::= \"x\"", "root ::= b", "root ::= \"a", "???", "root ::= \"a\"{5,2}"}) {
    bad(Kind::kGrammar, grammar);
  }
  for (const char* tag : {"{}", R"({"type":"structural_tag"})", R"({"type":"structural_tag","format":{"type":"nothing"}})",
                          R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":[],"tags":[]}})"}) {
    bad(Kind::kStructuralTag, tag);
  }
  EXPECT_TRUE(compiler_->compile({Kind::kRegex, "still alive", {}}).ok());
}

TEST_F(Xgrammar, GrammarsAreCachedAndSharedByThreads) {
  const auto first = compile(Kind::kJsonSchema, kPersonSchema);
  EXPECT_EQ(compile(Kind::kJsonSchema, kPersonSchema), first);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        const auto grammar = compiler_->compile({Kind::kRegex, "[a-z]{" + std::to_string(1 + (i * 7 + t) % 12) + "}", {}});
        if (!grammar.ok()) continue;
        const auto matcher = (*grammar)->matcher();
        const auto other = first->matcher();
        good += matcher.ok() && other.ok() && !ids_in(mask_of(**matcher, *tokenizer_)).empty() &&
                !ids_in(mask_of(**other, *tokenizer_)).empty();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 32);
}

TEST_F(Xgrammar, MatchersOutliveTheirCompiler) {
  auto matcher = *compile(Kind::kRegex, "ab")->matcher();
  compiler_.reset();
  for (const int32_t id : byte_tokens(*tokenizer_, "ab")) EXPECT_TRUE(matcher->accept(id));
  EXPECT_TRUE(matcher->complete());
  EXPECT_EQ(ids_in(mask_of(*matcher, *tokenizer_)), std::vector<int32_t>{end_id_});
}

TEST(XgrammarFolder, AnotherVersionIsRefusedByName) {
  const testing::TempDir folder;
  folder.write("xgrammar/libxgrammar_bindings.so", "no library");
  folder.write("xgrammar-0.3.1.dist-info/METADATA", "");
  const auto tokenizer = test_tokenizer("qwen2");
  const auto message = [&] { return (*make_grammar_compiler(*tokenizer, {}, {folder.path(), {}}))->library_status().message(); };
  EXPECT_THAT(message(),
              ::testing::AllOf(HasSubstr("has xgrammar-0.3.1, only 0.2.8"), HasSubstr("pip install --no-deps xgrammar==0.2.8")));
  folder.write("xgrammar-0.2.8.dist-info/METADATA", "");
  EXPECT_THAT(message(), HasSubstr("libtvm_ffi.so can't be loaded"));
}

// Folders and files of the installed library, as an installer would make them there.
void link_from_installed(const testing::TempDir& folder, const std::string& package) {
  for (const auto& each : std::filesystem::directory_iterator(std::getenv("CHORAL_XGRAMMAR"))) {
    const std::string name = each.path().filename().string();
    const std::string info = package == "tvm_ffi" ? "apache_tvm_ffi-" : package + "-";
    if (name == package || name.starts_with(info)) std::filesystem::create_directory_symlink(each.path(), folder.path() / name);
  }
}

TEST_F(Xgrammar, IsFoundWhenItIsInstalledMeanwhile) {
  const testing::TempDir folder;
  const auto compiler = *make_grammar_compiler(*tokenizer_, {end_id_}, {folder.path(), {.max_compile_s = 300}});
  const StructuredOutput wanted{Kind::kRegex, "[ab]+", {}};
  EXPECT_EQ(compiler->compile(wanted).status().code(), Code::kUnsupported);
  link_from_installed(folder, "xgrammar");
  EXPECT_THAT(compiler->library_status().message(), HasSubstr("libtvm_ffi.so can't be loaded"));
  link_from_installed(folder, "tvm_ffi");
  EXPECT_TRUE(compiler->library_status().ok()) << compiler->library_status().to_string();
  EXPECT_TRUE(compiler->compile(wanted).ok());
}

// Everything there long ago, so that no change can hide in the tick of a search.
void make_old(const std::filesystem::path& folder) {
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder)) {
    std::filesystem::last_write_time(each.path(), long_ago);
  }
  std::filesystem::last_write_time(folder, long_ago);
}

TEST(XgrammarFolder, IsSearchedAgainOnlyWhenItChanges) {
  const testing::TempDir folder;
  folder.write("another/package.py", "");
  make_old(folder.path());
  XgrammarFinder finder(folder.path());
  EXPECT_TRUE(finder.is_worth_a_search());
  EXPECT_FALSE(finder.search().ok());
  EXPECT_FALSE(finder.is_worth_a_search()) << "nothing has changed";
  folder.write("xgrammar/__init__.py", "");
  EXPECT_TRUE(finder.is_worth_a_search());
  EXPECT_FALSE(finder.search().ok());
  EXPECT_TRUE(finder.is_worth_a_search()) << "what was made just now may have got another file in the same tick";
  make_old(folder.path());
  EXPECT_FALSE(finder.search().ok());
  EXPECT_FALSE(finder.is_worth_a_search());
  folder.write("xgrammar/libxgrammar_bindings.so", "half of");
  EXPECT_TRUE(finder.is_worth_a_search()) << "it came into a folder that was there";
  folder.write("xgrammar-0.2.8.dist-info/RECORD", "xgrammar/libxgrammar_bindings.so,sha256=x,14\n");
  EXPECT_THAT(finder.search().status().message(), HasSubstr("it is being installed, or broken"));
  folder.write("xgrammar/libxgrammar_bindings.so", "half of a file");
  EXPECT_TRUE(finder.is_worth_a_search());
  EXPECT_TRUE(finder.search().ok());
}

TEST(XgrammarFolder, MayAppearWhereNothingWas) {
  const testing::TempDir parent;
  XgrammarFinder finder(parent.path() / "later");
  EXPECT_FALSE(finder.search().ok());
  EXPECT_FALSE(finder.is_worth_a_search());
  parent.write("later/xgrammar/libxgrammar_bindings.so", "");
  parent.write("later/xgrammar-0.2.8.dist-info/METADATA", "");
  EXPECT_TRUE(finder.is_worth_a_search());
  EXPECT_TRUE(finder.search().ok());
}

TEST_F(Xgrammar, TheWayBackLeadsToTheSameMask) {
  expect_way_back(*compile(Kind::kJsonSchema, kPersonSchema), *tokenizer_, 15);
  expect_way_back(*compile(Kind::kRegex, "(ab|cd)+ef[0-9]{2,5}"), *tokenizer_, 15);
}

TEST_F(Xgrammar, WhatHasOneWayOnIsLikely) {
  const auto grammar = compile(Kind::kGrammar, R"(root ::= "The answer to the question is " [0-9]+ ".")");
  auto matcher = *grammar->matcher();
  EXPECT_EQ(likely_text(*matcher, *tokenizer_), "The answer to the question is ");
  for (const int32_t id : byte_tokens(*tokenizer_, "The ans")) ASSERT_TRUE(matcher->accept(id));
  EXPECT_EQ(likely_text(*matcher, *tokenizer_), "wer to the question is ");
  for (const int32_t id : byte_tokens(*tokenizer_, "wer to the question is 4")) ASSERT_TRUE(matcher->accept(id));
  EXPECT_EQ(likely_text(*matcher, *tokenizer_), "");
}

}  // namespace
}  // namespace choral::text
