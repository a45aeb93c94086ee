// Hostile and broken schemas, regular expressions, grammars and tags: refused before a library sees them, with the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar/json_schema_check.h"
#include "text/grammar/regex_size.h"

namespace choral::text {
namespace {

using ::testing::HasSubstr;

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}
void expect(const Status& status, Code code, std::string_view says, std::string_view what) {
  EXPECT_EQ(status.code(), code) << what << ": " << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(std::string(says))) << what;
}

TEST(RegexCheck, TakesWhatIsUsual) {
  for (const char* pattern : {"a", "foo*", "[a-z]{2,5}", "(a|b)+?c", "\\d{4}-\\d{2}-\\d{2}", "[^]\\]]+", "(?:ab){3,}", "^x$",
                              "é{2}", "(?<year>[0-9]{4})", "a{0}", "[*+?(){}|]"}) {
    EXPECT_TRUE(check_regex(pattern, {}).ok()) << pattern << check_regex(pattern, {}).to_string();
  }
}

TEST(RegexCheck, NamesTheByteAtFault) {
  const auto refuse = [](std::string_view pattern, std::string_view says) {
    expect(check_regex(pattern, {}), Code::kInvalidArgument, says, pattern);
  };
  refuse("foo**", "byte 4: nothing to repeat");
  refuse("*a", "byte 0: nothing to repeat");
  refuse("(+)", "byte 1: nothing to repeat");
  refuse("a|?", "byte 2: nothing to repeat");
  refuse("a{2}{3}", "byte 4: nothing to repeat");
  refuse("^*", "byte 1: nothing to repeat");
  refuse("(a", "byte 0: this ( is never closed");
  refuse("a)", "byte 1: this ) closes nothing");
  refuse("[a-z", "byte 0: this [ is never closed");
  refuse("[]", "byte 0: this [ is never closed");
  refuse("a\\", "byte 1: nothing follows the backslash");
  refuse("a{", "byte 1: this { begins no repetition");
  refuse("a{x}", "byte 1: this { begins no repetition");
  refuse("a{5,2}", "byte 1: the repetition's upper bound");
  refuse("(?abc", "this group says ?");
  refuse("", "empty");
  refuse("a\xff", "not UTF-8");
}

TEST(RegexCheck, BoundsWhatItWouldBecome) {
  EXPECT_TRUE(check_regex("(a{100}){100}", {}).ok());
  for (const std::string& pattern :
       {std::string("a{1000000000}"), std::string("(a{1000}){1000}"), std::string("((((a{99}){99}){99}){99}){99}"),
        std::string("a{99999999999999999999999999}"), std::string("a{0,99999999999999999999999999}"), std::string("a{99999,}"),
        repeated("(", 80) + "a" + repeated(")", 80), std::string(5000, 'a')}) {
    EXPECT_EQ(check_regex(pattern, {}).code(), Code::kTooLarge) << pattern.substr(0, 60);
  }
}

TEST(JsonSchemaCheck, TakesWhatIsUsual) {
  for (
      const char* schema :
      {"{}", "true",
       R"({"type":"object","properties":{"a":{"type":["string","null"],"pattern":"^[a-z]+$","maxLength":10}},"required":["a"],
          "additionalProperties":false,"$defs":{"x":{"$ref":"#"}}})",
       R"({"anyOf":[{"$ref":"#/$defs/a"},{"enum":[1,"b",null]}],"$defs":{"a":{"const":1},"b":{"type":"array","items":{"$ref":"#/$defs/b"}}}})",
       R"({"type":"array","items":[{"type":"integer","minimum":0}],"minItems":1,"title":"x","description":"y","default":[],"examples":[{"type":7}]})",
       R"({"uniqueItems":false,"properties":{"pattern":{"type":"string"},"type":{"type":"string"},"$ref":{"type":"string"}}})"}) {
    EXPECT_TRUE(check_json_schema(schema, {}).ok()) << check_json_schema(schema, {}).to_string();
  }
}

TEST(JsonSchemaCheck, NamesThePlace) {
  const auto refuse = [](std::string_view schema, Code code, std::string_view says) {
    expect(check_json_schema(schema, {}), code, says, schema);
  };
  using enum Code;
  refuse("", kInvalidArgument, "not JSON");
  refuse("{\"type\":", kInvalidArgument, "not JSON");
  refuse("[]", kInvalidArgument, "at its top: a schema is an object");
  refuse("\"string\"", kInvalidArgument, "a schema is an object");
  refuse(R"({"type":"strnig"})", kInvalidArgument, "JSON schema, type: a type is one of array, boolean");
  refuse(R"({"type":7})", kInvalidArgument, "type: a type is");
  refuse(R"({"type":[]})", kInvalidArgument, "type: a type is");
  refuse(R"({"properties":{"a":{"pattern":"foo**"}}})", kInvalidArgument,
         "properties.a.pattern: regular expression, byte 4: nothing to repeat");
  refuse(R"({"properties":{"a":{"pattern":7}}})", kInvalidArgument, "properties.a.pattern: a pattern is a string");
  refuse(R"({"patternProperties":{"(":{}}})", kInvalidArgument, "patternProperties.(: regular expression");
  refuse(R"({"properties":[1]})", kInvalidArgument, "properties: an object");
  refuse(R"({"properties":{"a":7}})", kInvalidArgument, "properties.a: a schema");
  refuse(R"({"anyOf":[]})", kInvalidArgument, "anyOf: an array of one schema");
  refuse(R"({"anyOf":[{},{"items":{"enum":[]}}]})", kInvalidArgument, "anyOf[1].items.enum: an enum");
  refuse(R"({"required":"a"})", kInvalidArgument, "required: an array of property names");
  refuse(R"({"required":[1]})", kInvalidArgument, "required: an array of property names");
  refuse(R"({"minLength":-1})", kInvalidArgument, "minLength: a count");
  refuse(R"({"minItems":1.5})", kInvalidArgument, "minItems: a count");
  refuse(R"({"minimum":"0"})", kInvalidArgument, "minimum: a bound");
  refuse(R"({"$ref":"#/$defs/nowhere"})", kInvalidArgument, "$ref: \"#/$defs/nowhere\" is nowhere");
  refuse(R"({"$ref":"#anchor"})", kInvalidArgument, "is nowhere");
  refuse(R"({"$ref":7})", kInvalidArgument, "a $ref is a string");
  refuse(R"({"$ref":"#"})", kInvalidArgument, "leads only to itself");
  refuse(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})", kInvalidArgument,
         "only to itself");
  refuse(R"({"$ref":"https://example.org/schema"})", kUnsupported, "only references into the same schema");
  refuse(R"({"$ref":"file:///etc/passwd"})", kUnsupported, "only references into the same schema");
  refuse(R"({"uniqueItems":true})", kUnsupported, "uniqueItems: this keyword");
  refuse(R"({"not":{}})", kUnsupported, "not: this keyword");
  refuse(R"({"maxLength":1000000000})", kTooLarge, "maxLength: 1000000000");
  refuse(repeated(R"({"items":)", 100) + "{}" + repeated("}", 100), kTooLarge, "nested more than 64 deep");
  refuse(repeated("[", 100000) + repeated("]", 100000), kTooLarge, "nested more than");
  refuse(repeated("[", 100000), kInvalidArgument, "not JSON");
  refuse("{\"description\":\"" + std::string(300000, 'a') + "\"}", kTooLarge, "bytes");
  std::string many = "{\"anyOf\":[true";
  for (int i = 0; i < 40000; ++i) many += ",{}";
  refuse(many + "]}", kTooLarge, "more than 20000 schemas");
}

TEST(StructuralTagCheck, LooksIntoItsFormats) {
  const auto tag = [](std::string_view format) { return R"({"type":"structural_tag","format":)" + std::string(format) + "}"; };
  EXPECT_TRUE(check_structural_tag(tag(R"({"type":"json_schema","json_schema":{"type":"object"}})"), {}).ok());
  expect(check_structural_tag("[]", {}), Code::kInvalidArgument, "an object is wanted", "array");
  expect(check_structural_tag(tag(R"({"type":"tag","content":{"json_schema":{"type":"x"}}})"), {}), Code::kInvalidArgument,
         "structural tag, format.content.json_schema.type: a type", "type");
  expect(check_structural_tag(tag(R"({"elements":[{"type":"regex","pattern":"a**"}]})"), {}), Code::kInvalidArgument,
         "format.elements[0].pattern", "pattern");
  expect(check_structural_tag(tag(R"({"type":"grammar","grammar":"root ::= (\"a\""})"), {}), Code::kInvalidArgument,
         "never closed", "grammar");
  expect(check_structural_tag(tag(R"({"type":"repeat","min":1,"max":1000000000})"), {}), Code::kTooLarge, "format.max", "repeat");
}

TEST(EbnfCheck, BoundsDepthAndCounts) {
  EXPECT_TRUE(check_ebnf("root ::= \"(\" [(] (a | b){2,5} # {99999999}\na ::= \"x\\\"\"", {}).ok());
  expect(check_ebnf("root ::= \"a", {}), Code::kInvalidArgument, "byte 9: this \" is never closed", "quote");
  expect(check_ebnf("root ::= [a", {}), Code::kInvalidArgument, "this [ is never closed", "class");
  expect(check_ebnf("root ::= a)", {}), Code::kInvalidArgument, "closes nothing", "closing");
  expect(check_ebnf("root ::= \"a\"{1000000000}", {}), Code::kTooLarge, "a repetition of more than", "count");
  expect(check_ebnf("root ::= " + repeated("(", 100), {}), Code::kTooLarge, "nested more than 64", "depth");
  expect(check_ebnf("root ::= \xff", {}), Code::kInvalidArgument, "not UTF-8", "bytes");
}

}  // namespace
}  // namespace choral::text
