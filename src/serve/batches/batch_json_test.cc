#include "serve/batches/batch_json.h"

#include <gmock/gmock.h>

#include "serve/batches/batch_call.h"
#include "serve/batches/batch_runner.h"
#include "serve/openai/json.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

std::string fault_of(std::string_view line, std::string_view endpoint = "/v1/completions") {
  BatchLine read;
  const auto fault = read_batch_line(line, endpoint, read);
  return fault ? fault->code : "";
}

TEST(BatchLine, IsReadOrItsFaultIsNamed) {
  constexpr std::string_view kGood =
      R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "x\n", "n": 1.50}})";
  BatchLine line;
  ASSERT_FALSE(read_batch_line(kGood, "/v1/completions", line));
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.model, "m");
  EXPECT_EQ(Json::parse(line.body), Json::parse(R"({"model": "m", "prompt": "x\n", "n": 1.50})"));
  EXPECT_EQ(fault_of(kGood, "/v1/embeddings"), "invalid_url");
  EXPECT_EQ(fault_of(kGood, ""), "");
  EXPECT_EQ(fault_of("{"), "invalid_json_line");
  EXPECT_EQ(fault_of("[]"), "invalid_json_line");
  EXPECT_EQ(fault_of(std::string(100, '[')), "too_large");
  EXPECT_EQ(fault_of(R"({"method": "POST"})"), "missing_required_parameter");
  EXPECT_EQ(fault_of(R"({"custom_id": 1})"), "invalid_type");
  EXPECT_EQ(fault_of(R"({"custom_id": "", "method": "POST", "url": "/v1/completions", "body": {}})"), "invalid_request");
  EXPECT_EQ(fault_of(R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})"), "invalid_method");
  EXPECT_EQ(fault_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/files", "body": {}})", ""), "invalid_url");
  EXPECT_EQ(fault_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})"), "invalid_request");
  EXPECT_EQ(fault_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"stream": true}})"),
            "invalid_request");
}

TEST(BatchLine, AnswersAreOneLineEach) {
  const std::string line = answer_line("a\"\n", {.status = 200, .body = "{\"x\":\n1}"}, "r");
  EXPECT_EQ(line.find('\n'), line.npos);
  const Json json = Json::parse(line);
  EXPECT_EQ(json["custom_id"], "a\"\n");
  EXPECT_EQ(json["response"]["body"]["x"], 1);
  EXPECT_TRUE(json["error"].is_null());
}

TEST(BatchLine, UsageIsReadInEveryEndpointsWords) {
  const auto used = [](std::string_view answer) {
    const LineUsage u = used_tokens(answer);
    return std::array{u.input, u.cached_input, u.output, u.reasoning};
  };
  EXPECT_EQ(
      used(R"({"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":4},)"
           R"("completion_tokens_details":{"reasoning_tokens":1}}})"),
      (std::array<int64_t, 4>{7, 4, 3, 1}));
  EXPECT_EQ(used(R"({"usage":{"input_tokens":7,"output_tokens":3,"input_tokens_details":{"cached_tokens":4},)"
                 R"("output_tokens_details":{"reasoning_tokens":1}}})"),
            (std::array<int64_t, 4>{7, 4, 3, 1}));
  EXPECT_EQ(used(R"({"usage":{"prompt_tokens":7,"total_tokens":7}})"), (std::array<int64_t, 4>{7, 0, 0, 0}));
  for (const char* nothing : {"", "{", "[]", R"({"usage":null})", R"({"usage":{"prompt_tokens":-1}})", R"({"error":{}})"})
    EXPECT_EQ(used(nothing), (std::array<int64_t, 4>{})) << nothing;
}

TEST(BatchCall, FieldsAreCheckedByName) {
  const auto wrong = [](std::string_view body) {
    BodyNotes notes;
    return read_batch_call(body, notes).ok() ? "" : notes.param;
  };
  const auto with = [](std::string_view window) {
    return fmt::format(R"({{"input_file_id":"f","endpoint":"/v1/completions","completion_window":"{}"}})", window);
  };
  BodyNotes notes;
  EXPECT_EQ(read_batch_call(with("24h"), notes)->window_s, 86'400);
  EXPECT_EQ(read_batch_call(with("90s"), notes)->window_s, 90);
  for (const std::string_view window : {"", "h", "0h", "-1h", "24", "24hh", "31d", "999999999999999999999h", "1w"})
    EXPECT_EQ(wrong(with(window)), "completion_window") << window;
  EXPECT_EQ(wrong("{}"), "input_file_id");
  EXPECT_EQ(wrong(R"({"input_file_id":"f","endpoint":"/v1/images/edits"})"), "endpoint");
  EXPECT_EQ(wrong(R"({"metadata":{"a":1}})"), "metadata");
  EXPECT_EQ(wrong(R"({"output_expires_after":{"anchor":"created_at","seconds":3599}})"), "output_expires_after");
  EXPECT_EQ(wrong(R"({"output_expires_after":{"seconds":3600}})"), "output_expires_after");
}

TEST(BatchCall, AnUploadIsAFileForABatch) {
  const auto form = [](std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
    std::string body;
    for (const auto& [name, value] : fields)
      body += fmt::format("--b\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n", name, value);
    return body + "--b--";
  };
  const auto wrong = [](const std::string& body) {
    BodyNotes notes;
    const auto call = read_upload_call("multipart/form-data; boundary=b", body, notes);
    return call.ok() ? "" : notes.param;
  };
  EXPECT_EQ(wrong(form({{"file", "{}"}, {"purpose", "batch"}})), "");
  EXPECT_EQ(wrong(form({{"purpose", "batch"}})), "file");
  EXPECT_EQ(wrong(form({{"file", ""}, {"purpose", "batch"}})), "file");
  EXPECT_EQ(wrong(form({{"file", "{}"}})), "purpose");
  EXPECT_EQ(wrong(form({{"file", "{}"}, {"purpose", "fine-tune"}})), "purpose");
  EXPECT_EQ(wrong(form({{"file", "{}"}, {"purpose", "batch"}, {"expires_after[seconds]", "3600"}})), "expires_after");
  EXPECT_EQ(
      wrong(form(
          {{"file", "{}"}, {"purpose", "batch"}, {"expires_after[anchor]", "created_at"}, {"expires_after[seconds]", "36OO"}})),
      "expires_after");
  EXPECT_EQ(
      wrong(form(
          {{"file", "{}"}, {"purpose", "batch"}, {"expires_after[anchor]", "created_at"}, {"expires_after[seconds]", "3600"}})),
      "");
}

TEST(BatchRunner, LeavesRoomToOthers) {
  EXPECT_EQ(most_lines(64, 0, 0), 32);
  EXPECT_EQ(most_lines(1, 0, 0), 1);
  EXPECT_EQ(most_lines(64, 0, 5), 32) << "they are the batch's own";
  EXPECT_EQ(most_lines(64, 3, 0), 8);
  EXPECT_EQ(most_lines(4, 3, 0), 1);
  EXPECT_EQ(most_lines(64, 3, 1), 0);
}

}  // namespace
}  // namespace choral::serve
