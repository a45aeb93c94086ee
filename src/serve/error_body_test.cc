#include "serve/error_body.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

TEST(ErrorBody, HasOpenAIsShape) {
  EXPECT_EQ(error_body({404, "no such model", "model_not_found", "model"}),
            R"({"error":{"message":"no such model","type":"not_found_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(error_body({400, "bad", "", ""}),
            R"({"error":{"message":"bad","type":"invalid_request_error","param":null,"code":null}})");
}

TEST(ErrorBody, TakesAStatusAsItIs) {
  const ApiError error = api_error(too_large("{} tokens", 9), "messages");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "too_large");
  EXPECT_EQ(error.message, "9 tokens");
  EXPECT_EQ(error.param, "messages");
}

TEST(ErrorBody, AReasonForALogQuotesNoValue) {
  const auto reason = [](std::string message) { return error_reason({400, std::move(message), "invalid_argument", ""}); };
  EXPECT_EQ(reason("the prompt has 5000 tokens, but at most 4095 fit"),
            "invalid_argument: the prompt has 5000 tokens, but at most 4095 fit");
  EXPECT_EQ(reason("prompt 1: 'n' is 0"), "invalid_argument: prompt 1: 'n' is 0");
  EXPECT_EQ(reason(R"('prompt' must be a text, not {"a":"my secret"})"), "invalid_argument: 'prompt' must be a text");
  EXPECT_EQ(reason("not JSON: column 9: syntax error - missing closing quote; last read: '\"my secret'"),
            "invalid_argument: not JSON: column 9: syntax error - missing closing quote");
  EXPECT_EQ(reason("chat template: line 1: my secret"), "invalid_argument: chat template");
  EXPECT_EQ(reason("structured_output: my secret is no regex"), "invalid_argument: structured_output");
  EXPECT_LT(reason(std::string(1000, 'x')).size(), 250u);
}

TEST(ErrorBody, EveryStatusHasAType) {
  EXPECT_EQ(error_type(401), "authentication_error");
  EXPECT_EQ(error_type(429), "rate_limit_error");
  EXPECT_EQ(error_type(418), "invalid_request_error");
  EXPECT_EQ(error_type(507), "server_error");
}

}  // namespace
}  // namespace choral::serve
