#include "requests/request_line.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <limits>
#include <tuple>

namespace choral::requests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

struct Outcome {
  Status status;
  RequestLine line;
  std::vector<std::string> warnings;
};

Outcome outcome_of(const std::string& line, SamplingParams defaults = {}) {
  Outcome out;
  RequestLineReader reader(std::move(defaults), [&](const std::string& text) { out.warnings.push_back(text); });
  out.status = reader.read(line, out.line);
  return out;
}

// {<many members>"prompt":"hi"}
std::string with_members(int count, const std::string& form) {
  std::string line = "{";
  for (int i = 0; i < count; ++i) line += fmt::format(fmt::runtime(form), i) + ",";
  return line + "\"prompt\":\"hi\"}";
}

TEST(RequestLine, ASeedIsANumberOrNone) {
  EXPECT_EQ(outcome_of(R"({"seed": 18446744073709551615})").line.request.sampling.seed, UINT64_MAX);
  SamplingParams defaults;
  defaults.seed = 5;
  EXPECT_EQ(outcome_of(R"({"seed": -1})", defaults).line.request.sampling.seed, std::nullopt);
  EXPECT_EQ(outcome_of(R"({"seed": null})", defaults).line.request.sampling.seed, 5u) << "as if it were not there";
  EXPECT_EQ(outcome_of(R"({"seed": -5})").line.request.sampling.seed, UINT64_MAX - 4) << "the same 64 bits";
  for (const char* bad : {"18446744073709551616", "1.5", "\"7\""}) {
    const Status status = outcome_of(fmt::format("{{\"seed\": {}}}", bad), defaults).status;
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'seed'"), HasSubstr("-1 for none")));
  }
}

TEST(RequestLine, WhatWouldChangeTheAnswerAndIsNotThereIsRefused) {
  const auto refused = outcome_of(R"({"prompt":"hi","mirostat":2})").status;
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("'mirostat' is not served"));
  const auto off = outcome_of(R"({"prompt":"hi","mirostat":0,"suffix":null,"use_beam_search":false})");
  EXPECT_TRUE(off.status.ok()) << off.status.to_string();
  EXPECT_THAT(off.warnings, ElementsAre());
}

TEST(RequestLine, BeamSearchIsReadByItsWords) {
  RequestLineReader reader({}, nullptr);
  RequestLine line;
  const auto read = [&](std::string_view text) { return reader.read(text, line); };
  ASSERT_TRUE(read(R"({"use_beam_search":true,"beam_width":4,"length_penalty":0.5,"early_stopping":"never"})").ok());
  const BeamSearch& beams = line.request.sampling.beams;
  EXPECT_TRUE(beams.wanted);
  EXPECT_EQ(beams.width, 4);
  EXPECT_EQ(beams.length_penalty, 0.5F);
  EXPECT_EQ(beams.early_stopping, EarlyStopping::kNever);
  ASSERT_TRUE(read(R"({"early_stopping":true})").ok());
  EXPECT_EQ(beams.early_stopping, EarlyStopping::kYes);
  EXPECT_FALSE(beams.wanted);
  ASSERT_TRUE(read(R"({"early_stopping":false})").ok());
  EXPECT_EQ(beams.early_stopping, EarlyStopping::kNo);
  EXPECT_THAT(read(R"({"early_stopping":"soon"})").message(), HasSubstr("'early_stopping'"));
}

TEST(RequestLine, EntriesAreCountedAsJsonCounts) {
  EXPECT_THAT(outcome_of(R"({"stop":[5]})").status.message(), HasSubstr("'stop[0]'"));
  EXPECT_THAT(outcome_of(R"({"stop":["a",5]})").status.message(), HasSubstr("'stop[1]'"));
  EXPECT_THAT(outcome_of(R"({"prompt_token_ids":["x",1]})").status.message(), HasSubstr("'prompt_token_ids[0]'"));
  EXPECT_THAT(outcome_of(R"({"bad_words":["x","y",null]})").status.message(), HasSubstr("'bad_words[2]'"));
}

TEST(RequestLine, TheLastOfEqualKeysCountsInThePlaceOfTheFirst) {
  const auto got = outcome_of(R"({"max_tokens":1,"chat_template_kwargs":{"b":1,"a":2,"b":3},"max_tokens":2})");
  ASSERT_TRUE(got.status.ok()) << got.status.to_string();
  EXPECT_EQ(got.line.request.sampling.max_tokens, 2);
  EXPECT_EQ(got.line.request.template_kwargs_json, R"({"b":3,"a":2})");
}

// With a search through all keys for each, this test would not end.
TEST(RequestLine, HundredsOfThousandsOfKeysAreRead) {
  constexpr int kKeys = 400'000;
  const auto fields = outcome_of(with_members(kKeys, "\"k{}\":1"));
  EXPECT_TRUE(fields.status.ok()) << fields.status.to_string();
  EXPECT_EQ(fields.line.request.prompt, "hi");
  std::string kwargs = with_members(kKeys, "\"k{}\":1");
  const auto nested = outcome_of("{\"prompt\":\"hi\",\"chat_template_kwargs\":" + kwargs + "}");
  EXPECT_TRUE(nested.status.ok()) << nested.status.to_string();
  EXPECT_EQ(nested.line.request.template_kwargs_json, kwargs);
}

TEST(RequestLine, KeysAndValuesHaveALimit) {
  const auto keys = outcome_of(with_members(1'000'000, "\"k{}\":1")).status;
  EXPECT_EQ(keys.code(), Code::kTooLarge);
  EXPECT_THAT(keys.message(), HasSubstr("more than 128.0 MiB of memory"));
  std::string ids = "{\"prompt_token_ids\":[";
  for (int i = 0; i <= 1 << 22; ++i) ids += "1,";
  const auto values = outcome_of(ids + "1]}").status;
  EXPECT_EQ(values.code(), Code::kTooLarge);
  EXPECT_THAT(values.message(), HasSubstr("more than 128.0 MiB of memory"));
}

TEST(RequestLine, WarningsAndErrorsQuoteLittle) {
  const auto unknown = outcome_of(with_members(1000, "\"field{}\":1"));
  ASSERT_TRUE(unknown.status.ok());
  ASSERT_THAT(unknown.warnings, SizeIs(17));
  EXPECT_THAT(unknown.warnings.front(), HasSubstr("'field0'"));
  EXPECT_THAT(unknown.warnings.back(), HasSubstr("more fields"));
  const std::string longest(1 << 20, 'x');
  EXPECT_THAT(outcome_of("{\"" + longest + "\":1}").warnings, ElementsAre(SizeIs(Lt(200))));
  for (const std::string& line : {"{\"logit_bias\":{\"" + longest + "\":1}}", "{\"max_tokens\":\"" + longest + "\"}",
                                  "{\"prompt\":\"" + longest, "{\"lora\":[{\"" + longest + "\":1}]}"}) {
    const Status status = outcome_of(line).status;
    EXPECT_FALSE(status.ok());
    EXPECT_LT(status.message().size(), 500u) << line.substr(0, 20);
  }
}

TEST(RequestLine, ATokenIdOfABiasIsWrittenInOneWay) {
  const auto good = outcome_of(R"({"logit_bias":{"0":1,"1":2,"2147483647":3}})");
  ASSERT_TRUE(good.status.ok()) << good.status.to_string();
  EXPECT_THAT(good.line.request.sampling.logit_bias, ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2147483647, 3)));
  for (const std::string key : {"", "01", "00", "-0", "-1", "+1", " 1", "1 ", "1.0", "2147483648", "00000000001"}) {
    const Status status = outcome_of("{\"logit_bias\":{\"1\":100,\"" + key + "\":100}}").status;
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << key;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'logit_bias': '" + key + "' is not a token id"), HasSubstr("digits")));
  }
  const Status wide = outcome_of("{\"logit_bias\":{\"" + std::string(3000, '0') + "1\":\"x\"}}").status;
  EXPECT_THAT(wide.message(), AllOf(HasSubstr("is not a token id"), SizeIs(Lt(200))));
}

TEST(RequestLine, BiasesMayBePairs) {
  const auto got = outcome_of(R"({"logit_bias":[[5,1.5],["a b",-2],[7,false]]})");
  ASSERT_TRUE(got.status.ok()) << got.status.to_string();
  const auto& sampling = got.line.request.sampling;
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(5, 1.5F), Pair(7, -std::numeric_limits<float>::infinity())));
  EXPECT_THAT(sampling.logit_bias_texts, ElementsAre(Pair("a b", -2.0F)));
  for (const char* bad : {"[5]", "[[5]]", "[[5,1,2]]", "[[5,true]]", "[[5.5,1]]", "[[null,1]]", "[[5,\"1\"]]", "7"}) {
    const Status status = outcome_of(fmt::format("{{\"logit_bias\":{}}}", bad)).status;
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("'logit_bias"));
  }
}

TEST(RequestLine, SamplersHaveTheNamesOfLlamaCpp) {
  const auto got =
      outcome_of(R"({"typical_p":0.9,"top_n_sigma":2,"xtc_probability":0.5,"xtc_threshold":0.2,"repeat_penalty":1.2,)"
                 R"("repeat_last_n":64,"dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,)"
                 R"("dry_penalty_last_n":100,"dry_sequence_breakers":["."]})");
  ASSERT_TRUE(got.status.ok()) << got.status.to_string();
  EXPECT_THAT(got.warnings, SizeIs(0));
  const auto& p = got.line.request.sampling;
  EXPECT_EQ(std::tie(p.typical_p, p.top_n_sigma, p.xtc_probability, p.xtc_threshold, p.repetition_penalty),
            std::make_tuple(0.9F, 2.0F, 0.5F, 0.2F, 1.2F));
  EXPECT_EQ(std::tie(p.penalty_last_n, p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_penalty_last_n),
            std::make_tuple(64, 0.8F, 2.0F, 3, 100));
  EXPECT_THAT(p.dry_sequence_breakers, ElementsAre("."));
  EXPECT_EQ(outcome_of(R"({"typ_p":0.3})").line.request.sampling.typical_p, 0.3F);
}

TEST(RequestLine, ANumberBeyondADoubleIsNoBrokenJson) {
  for (const std::string number : {"1e400", "-1e400"}) {
    const Status status = outcome_of("{\"temperature\":" + number + "}").status;
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), "a number of the request is beyond what a double holds: '" + number + "'");
  }
  EXPECT_LT(outcome_of("{\"unknown\":" + std::string(1 << 20, '9') + "}").status.message().size(), 200u);
  EXPECT_EQ(outcome_of("{\"temperature\":1e}").status.code(), Code::kCorrupt);
}

TEST(RequestLine, AnAnswersFormIsAskedForAsOverHttp) {
  const auto form = [](const std::string& member) { return outcome_of("{" + member + "}").line.request.structured_output; };
  using Kind = StructuredOutput::Kind;
  EXPECT_EQ(form(R"("response_format":{"type":"json_object"})").kind, Kind::kJsonObject);
  EXPECT_EQ(form(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}})").text,
            R"({"type":"object"})");
  EXPECT_EQ(form(R"("structured_outputs":{"regex":"a+"})"), form(R"("guided_regex":"a+")"));
  EXPECT_EQ(form(R"("guided_json":{"type":"object"})").kind, Kind::kJsonSchema);
  EXPECT_EQ(form(R"("guided_grammar":"root ::= \"a\"")").kind, Kind::kGrammar);
  EXPECT_THAT(form(R"("guided_choice":["a","b"])").choices, ElementsAre("a", "b"));
  for (const char* bad : {R"("guided_choice":"a")", R"("response_format":"json")", R"("structured_outputs":{"made_up":1})",
                          R"("guided_regex":"a","guided_json":{})", R"("structured_outputs":{"regex":"a","json":{}})"})
    EXPECT_EQ(outcome_of(std::string("{") + bad + "}").status.code(), Code::kInvalidArgument) << bad;
}

TEST(RequestLine, BringsLimitsOfTimeAndOfItsPrompt) {
  const auto got = outcome_of(R"({"timeout_s":1.5,"queue_timeout_s":2,"truncate_prompt_tokens":7,"logprob_token_ids":[5,3]})");
  ASSERT_TRUE(got.status.ok()) << got.status.to_string();
  EXPECT_THAT(got.warnings, SizeIs(0));
  EXPECT_EQ(got.line.request.timeout_s, 1.5);
  EXPECT_EQ(got.line.request.queue_timeout_s, 2);
  EXPECT_EQ(got.line.request.truncate_prompt_tokens, 7);
  EXPECT_THAT(got.line.request.sampling.logprob_token_ids, ElementsAre(5, 3));
}

TEST(RequestLine, NoErrorDrivesATerminal) {
  const Status status = outcome_of("{\"logit_bias\":{\"\\u001b[31m\":1}}").status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\\x1b[31m"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace choral::requests
