#include "io/config_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ConfigMap parsed(std::string_view text) {
  auto map = ConfigMap::parse_json(text, "config.json");
  EXPECT_TRUE(map.ok()) << map.status().message();
  return map.ok() ? *map : ConfigMap();
}

TEST(ConfigJson, KeepsOrderTypesAndText) {
  const std::string_view text =
      R"({"z": 1, "a": [true, null, -2.5, "x\"\\\u00e9\n"], "o": {"k": {}}, "huge": 1000000000000000019884624838656, "e": 1e6})";
  EXPECT_EQ(parsed(text).to_json(),
            "{\"z\": 1, \"a\": [true, null, -2.5, \"x\\\"\\\\\xc3\xa9\\n\"], \"o\": {\"k\": {}}, "
            "\"huge\": 1e+30, \"e\": 1000000.0}");
}

TEST(ConfigJson, RefusesWhatIsNotJson) {
  for (const std::string_view text : {"",
                                      " ",
                                      "[]",
                                      "1",
                                      "\"a\"",
                                      "{",
                                      "}",
                                      "{\"a\":1",
                                      "{\"a\":1,}",
                                      "{\"a\":[1,]}",
                                      "{\"a\":[1 2]}",
                                      "{\"a\" 1}",
                                      "{a:1}",
                                      "{'a':1}",
                                      "{\"a\":1}{}",
                                      "{\"a\":1} x",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":.5}",
                                      "{\"a\":+1}",
                                      "{\"a\":-}",
                                      "{\"a\":1e}",
                                      "{\"a\":0x1}",
                                      "{\"a\":tru}",
                                      "{\"a\":nul}",
                                      "{\"a\":truee}",
                                      "{\"a\":NaN}",
                                      "{\"a\":Infinity}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":\"\\x\"}",
                                      "{\"a\":\"\\ud800\"}",
                                      "{\"a\":\"\\udc00\"}",
                                      "{\"a\":1 \"b\":2}",
                                      "{\"a\":[}",
                                      "{\"a\":[1}",
                                      "{\"a\":{]}",
                                      "{\"a\":1]",
                                      "{\"a\":\"\xff\"}",
                                      "{\"a\":1e999}",
                                      "{// c\n}"}) {
    const auto map = ConfigMap::parse_json(text, "config.json");
    EXPECT_EQ(map.status().code(), Code::kCorrupt) << text;
    EXPECT_THAT(map.status().message(), HasSubstr("config.json")) << text;
  }
}

TEST(ConfigJson, RefusesAKeyTwiceAtEveryDepth) {
  EXPECT_THAT(ConfigMap::parse_json(R"({"a":1,"b":2,"a":1})", "f").status().message(), HasSubstr("'a' stands twice"));
  EXPECT_THAT(ConfigMap::parse_json(R"({"x":[{"a":1,"\u0061":1}]})", "f").status().message(), HasSubstr("'a' stands twice"));
}

TEST(ConfigJson, Limits) {
  const auto nested = [](int depth) { return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}"; };
  EXPECT_TRUE(ConfigMap::parse_json(nested(64), "f").ok());
  EXPECT_EQ(ConfigMap::parse_json(nested(65), "f").status().code(), Code::kTooLarge);
  EXPECT_EQ(ConfigMap::parse_json(nested(500'000), "f").status().code(), Code::kTooLarge) << "must not end the process";
  EXPECT_EQ(ConfigMap::parse_json(R"({"a":[1,2,3]})", "f", {.max_values = 3}).status().code(), Code::kTooLarge);
  EXPECT_TRUE(ConfigMap::parse_json(R"({"a":[1,2,3]})", "f", {.max_values = 4}).ok());
  EXPECT_EQ(ConfigMap::parse_json("{        }", "f", {.max_bytes = 4}).status().code(), Code::kTooLarge);
}

TEST(ConfigJson, SaysTheLine) {
  const auto map = ConfigMap::parse_json("{\n\"a\": 1,\n\"b\": tru,\n\"c\": 1}", "f");
  EXPECT_THAT(map.status().message(), HasSubstr("near line 3"));
}

TEST(ConfigMap, Integers) {
  const ConfigMap map =
      parsed(R"({"i": 7, "e": 1e6, "f": 1.5, "s": "8", "n": null, "huge": 9223372036854775808, "big": 1e300, "neg": -1})");
  EXPECT_EQ(*map.get_int("i"), 7);
  EXPECT_EQ(*map.get_int("e"), 1'000'000);
  EXPECT_EQ(*map.get_int_or("absent", 3), 3);
  EXPECT_EQ(*map.get_int_or("n", 3), 3) << "null counts as absent";
  EXPECT_EQ(map.get_int("f").status().message(), "config.json: f is the number 1.5, but an integer is needed");
  EXPECT_EQ(map.get_int("s").status().message(), "config.json: s is the string \"8\", but an integer is needed");
  EXPECT_FALSE(map.get_int_or("s", 3).ok()) << "a default does not cover a wrong type";
  EXPECT_FALSE(map.get_int("huge").ok());
  EXPECT_FALSE(map.get_int("big").ok());
  EXPECT_EQ(map.get_int("neg", kPositive).status().message(), "config.json: neg is -1, but must be from 1 to 2147483647");
  EXPECT_FALSE(map.get_int_or("neg", 1, kNotNegative).ok());
}

TEST(ConfigMap, MissingKeysNameTheNearest) {
  const ConfigMap map = parsed(R"({"num_hidden_layers": 2, "n": null})");
  const auto missing = map.get_int("num_hidden_layer");
  EXPECT_EQ(missing.status().code(), Code::kCorrupt) << "the file is there and breaks its own format";
  EXPECT_EQ(missing.status().message(), "config.json: num_hidden_layer is missing; the nearest is 'num_hidden_layers'");
  EXPECT_EQ(map.get_int("n").status().message(), "config.json: n is missing (it is null)");
}

TEST(ConfigMap, OtherScalars) {
  const ConfigMap map = parsed(R"({"d": 0.5, "i": 2, "b": true, "s": "x"})");
  EXPECT_EQ(*map.get_double("d"), 0.5);
  EXPECT_EQ(*map.get_double("i"), 2.0);
  EXPECT_FALSE(map.get_double("b").ok());
  EXPECT_EQ(*map.get_double_or("absent", 9.0), 9.0);
  EXPECT_FALSE(map.get_double_or("s", 9.0).ok());
  EXPECT_TRUE(*map.get_bool("b"));
  EXPECT_FALSE(map.get_bool("i").ok());
  EXPECT_TRUE(*map.get_bool_or("absent", true));
  EXPECT_EQ(*map.get_string("s"), "x");
  EXPECT_FALSE(map.get_string("i").ok());
  EXPECT_EQ(*map.get_string_or("absent", "y"), "y");
}

TEST(ConfigMap, RangesOfNumbers) {
  const ConfigMap map = parsed(R"({"eps": -1, "big": 1e300, "zero": 0})");
  EXPECT_EQ(map.get_double("eps", {0, 1}).status().message(), "config.json: eps is -1, but must be from 0 to 1");
  EXPECT_FALSE(map.get_double_or("big", 0, {0, 1}).ok());
  EXPECT_EQ(*map.get_double_or("absent", 7, {0, 1}), 7) << "a default is the caller's";
  EXPECT_EQ(*map.get_double("zero", {0, 1}), 0);
}

TEST(ConfigMap, WhatAFileSaysWronglyIsCorrupt) {
  const ConfigMap map = parsed(R"({"s": "8", "i": -1, "list": ["x"]})");
  for (const Status& status : {map.get_int("s").status(), map.get_int("i", kPositive).status(), map.get_int("absent").status(),
                               map.get_double("s").status(), map.get_bool("s").status(), map.get_string("i").status(),
                               map.get_ints("list").status(), map.get_doubles("list").status(), map.get_strings("i").status(),
                               map.get_map("s").status(), map.get_maps("list").status(), map.get_int_or_ints("s").status()}) {
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.message();
  }
}

TEST(ConfigMap, Arrays) {
  const ConfigMap map = parsed(R"({"i": [1, 2], "one": 5, "mixed": [1, "x"], "s": ["a", "b"], "d": [1, 0.5], "none": []})");
  EXPECT_THAT(*map.get_ints("i"), ElementsAre(1, 2));
  EXPECT_THAT(*map.get_int_or_ints("i"), ElementsAre(1, 2));
  EXPECT_THAT(*map.get_int_or_ints("one"), ElementsAre(5));
  EXPECT_THAT(*map.get_int_or_ints("absent"), IsEmpty());
  EXPECT_FALSE(map.get_int_or_ints("s").ok());
  EXPECT_EQ(map.get_ints("mixed").status().message(), "config.json: mixed[1] is the string \"x\", but an integer is needed");
  EXPECT_FALSE(map.get_ints("i", {2, 3}).ok());
  EXPECT_THAT(*map.get_strings("s"), ElementsAre("a", "b"));
  EXPECT_FALSE(map.get_strings("mixed").ok());
  EXPECT_THAT(*map.get_strings_or_empty("absent"), IsEmpty());
  EXPECT_FALSE(map.get_strings_or_empty("one").ok());
  EXPECT_THAT(*map.get_doubles("d"), ElementsAre(1.0, 0.5));
  EXPECT_THAT(*map.get_ints("none"), IsEmpty());
}

TEST(ConfigMap, ChildrenCarryThePathAndOutliveTheParent) {
  ConfigMap child;
  std::vector<ConfigMap> list;
  {
    const ConfigMap map = parsed(R"({"rope.x": 1, "rope_scaling": {"deep": {"factor": "8"}}, "list": [{"a": "1"}]})");
    EXPECT_EQ(*map.get_int("rope.x"), 1) << "dots are part of a key";
    child = *map.get_map("rope_scaling")->get_map("deep");
    list = *map.get_maps("list");
    EXPECT_FALSE(map.get_map("rope.x").ok());
    EXPECT_TRUE(map.get_map_or_empty("absent")->empty());
  }
  EXPECT_EQ(child.get_double("factor").status().message(),
            "config.json: rope_scaling.deep.factor is the string \"8\", but a number is needed");
  EXPECT_EQ(list.at(0).get_int("a").status().message(), "config.json: list[0].a is the string \"1\", but an integer is needed");
}

TEST(ConfigObject, FindsEveryKeyAfterChanges) {
  ConfigObject object;
  for (int i = 0; i < 50; ++i) object.set(fmt::format("k{}", i * 37 % 50), int64_t{i});
  object.set("k7", "replaced");
  object.erase("k8");
  EXPECT_EQ(object.members().size(), 49u);
  EXPECT_EQ(object.find("k8"), nullptr);
  EXPECT_EQ(*object.find("k7")->if_string(), "replaced");
  for (const auto& member : object.members()) EXPECT_EQ(object.find(member.key), &member.value);
}

}  // namespace
}  // namespace choral::io
