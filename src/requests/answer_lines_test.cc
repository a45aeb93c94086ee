#include "requests/answer_lines.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace choral::requests {
namespace {

std::string text_of(const LineEcho& echo, const RequestOutput& output) {
  std::string text;
  EXPECT_TRUE(write_answer(echo, output, [&](std::string_view piece) { return text += piece, Status(); }).ok());
  return text;
}

RequestOutput small_output() {
  RequestOutput output;
  output.prompt_token_ids = {1, 2};
  auto& c = output.completions.emplace_back();
  c.token_ids = {7};
  c.text = "é\"\n\x01";
  c.finish_reason = FinishReason::kStop;
  c.stop_reason = "9";
  c.logprobs = {{{7, -0.1F}, {{7, -0.1F}, {3, -std::numeric_limits<float>::infinity()}}}};
  c.cumulative_logprob = -0.1F;
  return output;
}

TEST(AnswerLine, GivesAnEmbeddingInThePlaceOfAnAnswer) {
  RequestOutput output;
  output.prompt_token_ids = {1};
  output.embedding = {0.1F, -1e-5F, 1};
  EXPECT_EQ(text_of({}, output), R"({"id":null,"prompt_token_ids":[1],"embedding":[0.1,-1e-05,1]})");
}

TEST(AnswerLine, HasEveryFieldInItsPlace) {
  RequestOutput output = small_output();
  output.prompt_logprobs = {{{2, -1.5F}, {}}};
  output.cached_tokens = 32;
  EXPECT_EQ(text_of({.id_json = "\"a\"", .lora_json = "[\"x\"]"}, output),
            R"({"id":"a","lora":["x"],"prompt_token_ids":[1,2],"token_ids":[7],"text":"é\"\n\u0001","finish_reason":"stop",)"
            R"("stop_reason":"9","logprobs":[{"token_id":7,"logprob":-0.10000000149011612,"top":[{"token_id":7,)"
            R"("logprob":-0.10000000149011612},{"token_id":3,"logprob":-9999.0}]}],"cumulative_logprob":-0.10000000149011612,)"
            R"("prompt_logprobs":[{"token_id":2,"logprob":-1.5,"top":[]}],"cached_tokens":32})");
}

TEST(AnswerLine, SeveralCompletionsAndAnError) {
  RequestOutput output;
  output.completions.resize(2);
  output.completions[1].index = 1;
  output.status = Status(Code::kInternal, "broken");
  EXPECT_EQ(text_of({}, output),
            R"({"id":null,"prompt_token_ids":[],"token_ids":[],"text":"","finish_reason":"","completions":[)"
            R"({"index":0,"token_ids":[],"text":"","finish_reason":""},{"index":1,"token_ids":[],"text":"","finish_reason":""}],)"
            R"("error":{"code":"internal","message":"broken"}})");
  EXPECT_EQ(text_of({}, {}), R"({"id":null,"prompt_token_ids":[]})");
}

TEST(AnswerLine, NeverStandsInMemoryAsAText) {
  RequestOutput output = small_output();
  auto& c = output.completions[0];
  c.logprobs.assign(20'000, c.logprobs[0]);
  std::string text;
  size_t pieces = 0, largest = 0;
  const Status status = write_answer({}, output, [&](std::string_view piece) {
    ++pieces;
    largest = std::max(largest, piece.size());
    return text += piece, Status();
  });
  ASSERT_TRUE(status.ok());
  EXPECT_GT(pieces, 10u);
  EXPECT_LT(largest, size_t{80} << 10);
  EXPECT_EQ(nlohmann::json::parse(text)["logprobs"].size(), 20'000u);
}

TEST(AnswerLine, AFailedPieceIsTheLast) {
  RequestOutput output = small_output();
  output.completions[0].logprobs.assign(20'000, output.completions[0].logprobs[0]);
  int pieces = 0;
  const Status status = write_answer({}, output, [&](std::string_view) { return ++pieces, Status(Code::kUnavailable, "full"); });
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(pieces, 1);
}

TEST(AnswerLine, ErrorsOfLines) {
  EXPECT_EQ(error_line({.id_json = "7"}, 3, Status(Code::kCorrupt, "not JSON")),
            R"({"id":7,"line":3,"error":{"code":"corrupt","message":"not JSON"}})");
}

}  // namespace
}  // namespace choral::requests
