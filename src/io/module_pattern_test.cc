#include "io/module_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace choral::io {
namespace {

using ::testing::HasSubstr;
using Mode = ModulePattern::Mode;

bool matches(std::string_view pattern, Mode mode, std::string_view name) {
  const auto compiled = ModulePattern::compile(pattern, mode);
  CHORAL_CHECK(compiled.ok(), compiled.status().message());
  return *compiled->matches(name);
}

TEST(ModulePattern, KeysMatchAtTheEndBehindADot) {
  const std::string_view name = "model.layers.12.self_attn.q_proj";
  for (const char* key :
       {"q_proj", "self_attn.q_proj", "layers.12.self_attn.q_proj", "model.layers.12.self_attn.q_proj", ".*q_proj",
        "^model.layers.12.self_attn.q_proj", "^model\\.layers\\.12\\.self_attn\\.q_proj$", "q_proj$", "[qk]_proj",
        "layers\\.(1[0-9])\\.self_attn\\.q_proj", "12.self_attn.(q|k)_proj", "layers.1..self_attn.q_proj"}) {
    EXPECT_TRUE(matches(key, Mode::kSuffix, name)) << key;
  }
  for (const char* key : {"proj", "_proj", "attn.q_proj", "2.self_attn.q_proj", "q_pro", "self_attn", "^q_proj",
                          "^layers.12.self_attn.q_proj", "layers.1.self_attn.q_proj", "k_proj",
                          "layers\\.(2[0-9])\\.self_attn\\.q_proj", "model.model.layers.12.self_attn.q_proj"}) {
    EXPECT_FALSE(matches(key, Mode::kSuffix, name)) << key;
  }
  // The same answers from the plain path and from PCRE2: "(?:)" makes a pattern that is not plain.
  for (const char* key :
       {"q_proj", "proj", "self.attn.q.proj", "self\\.attn.q_proj", "^model.layers.12.self_attn.q_proj", "^q_proj", "q_proj$"}) {
    std::string slow(key);
    slow.insert(slow.size() - slow.ends_with('$'), "(?:)");
    ASSERT_FALSE(ModulePattern::compile(slow, Mode::kSuffix)->is_plain());
    ASSERT_TRUE(ModulePattern::compile(key, Mode::kSuffix)->is_plain());
    EXPECT_EQ(matches(key, Mode::kSuffix, name), matches(slow, Mode::kSuffix, name)) << key;
  }
}

TEST(ModulePattern, FullMatchIsTheWholeName) {
  const std::string_view name = "model.layers.0.mlp.up_proj";
  for (const char* pattern : {".*\\.mlp\\.(gate|up|down)_proj", ".*up_proj", "model.layers.0.mlp.up_proj", "x|model.*"}) {
    EXPECT_TRUE(matches(pattern, Mode::kFull, name)) << pattern;
  }
  for (const char* pattern : {"up_proj", "mlp.up_proj", ".*\\.mlp\\.(gate|down)_proj", "model", "model|x"}) {
    EXPECT_FALSE(matches(pattern, Mode::kFull, name)) << pattern;
  }
  EXPECT_TRUE(matches("a|ab", Mode::kFull, "ab"));  // the first alternative alone would not do
}

TEST(ModulePattern, MatchIsAnchoredAtTheBeginningOnly) {
  for (const char* pattern : {"model", ".*mlp", "model\\.layers\\.0.*", "x|model.layers"}) {
    EXPECT_TRUE(matches(pattern, Mode::kMatch, "model.layers.0.mlp.up_proj")) << pattern;
  }
  for (const char* pattern : {"layers", "mlp.*", "up_proj$"}) {
    EXPECT_FALSE(matches(pattern, Mode::kMatch, "model.layers.0.mlp.up_proj")) << pattern;
  }
}

TEST(ModulePattern, Layers) {
  const auto layer = [](std::string_view pattern, std::string_view name) {
    return *ModulePattern::compile(pattern, Mode::kLayer)->layer_of(name);
  };
  EXPECT_EQ(layer("layers", "model.layers.12.self_attn.q_proj"), 12);
  EXPECT_EQ(layer("h", "model.layers.12.self_attn.q_proj"), -1);
  EXPECT_EQ(layer("(layers|h)", "model.layers.7.mlp.up"), 7);  // a group of its own
  EXPECT_EQ(layer("layers", "layers.7.mlp.up"), -1);           // something stands before it
  EXPECT_EQ(layer("layers", "model.layers.7"), -1);            // and behind it
}

TEST(ModulePattern, HostilePatternsEnd) {
  const std::string name(60, 'a');
  for (const char* pattern : {"(a+)+[bc]", "(a|aa)+[bc]", "(.*)*[bc]", "(((a*)*)*)*[bc]", "(a*)*\\2[bc]"}) {
    const auto compiled = ModulePattern::compile(pattern, Mode::kSuffix);
    ASSERT_TRUE(compiled.ok());
    const auto result = compiled->matches(name);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), Code::kTooLarge);
      EXPECT_THAT(result.status().message(), HasSubstr("too much work"));
    } else {
      EXPECT_FALSE(*result);
    }
  }
  const auto result = ModulePattern::compile("(a+)+[bc]", Mode::kSuffix, 10'000)->matches(name);
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(ModulePattern::compile("(q_proj", Mode::kSuffix).status().message(), HasSubstr("no regular expression"));
  EXPECT_FALSE(ModulePattern::compile(std::string(5000, '(') + std::string(5000, ')'), Mode::kFull).ok());
  EXPECT_FALSE(ModulePattern::compile(std::string(2000, '(') + std::string(2000, ')'), Mode::kFull).ok());
  EXPECT_FALSE(ModulePattern::compile("(*UTF)x", Mode::kFull).ok());
}

}  // namespace
}  // namespace choral::io
