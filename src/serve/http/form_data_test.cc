#include "serve/http/form_data.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kFormContentType = "multipart/form-data; boundary=xyz";
constexpr std::string_view kForm =
    "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--xyz\r\nContent-Type: application/jsonl\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a "
    "\\\"b\\\".jsonl\"\r\n\r\n"
    "{}\r\n--xy\r\n{}\n\r\n--xyz--\r\n";

TEST(FormData, GivesNamesFileNamesAndContents) {
  const auto parts = read_form_data(kFormContentType, kForm);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].content, "batch");
  EXPECT_FALSE((*parts)[0].file_name);
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].file_name, "a \"b\".jsonl");
  EXPECT_EQ((*parts)[1].content, "{}\r\n--xy\r\n{}\n");
}

TEST(FormData, TakesQuotedBoundariesPreamblesAndEmptyContents) {
  const auto parts = read_form_data("Multipart/Form-Data; charset=utf-8; BOUNDARY=\"a b\"",
                                    "before\r\n--a b \t\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--a b--");
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 1u);
  EXPECT_EQ((*parts)[0].name, "x");
  EXPECT_EQ((*parts)[0].content, "");
  EXPECT_TRUE(read_form_data(kFormContentType, "--xyz--")->empty());
}

TEST(FormData, EveryCutOfAFormIsRefused) {
  for (size_t i = 0; i < kForm.size() - 4; ++i) EXPECT_FALSE(read_form_data(kFormContentType, kForm.substr(0, i)).ok()) << i;
}

TEST(FormData, WhatIsWrongIsSaid) {
  const auto said = [](std::string_view type, std::string_view body) {
    const auto parts = read_form_data(type, body);
    return parts.ok() ? "" : std::string(parts.status().message());
  };
  EXPECT_THAT(said("application/json", "{}"), HasSubstr("multipart/form-data"));
  EXPECT_THAT(said("", "{}"), HasSubstr("says none"));
  EXPECT_THAT(said("multipart/form-data", kForm), HasSubstr("boundary"));
  EXPECT_THAT(said("multipart/form-data; boundary=\"x", kForm), HasSubstr("no end"));
  EXPECT_THAT(said("multipart/form-data; boundary=" + std::string(71, 'x'), kForm), HasSubstr("1 to 70"));
  EXPECT_THAT(said(kFormContentType, "--xyz\r\n\r\nx\r\n--xyz--"), HasSubstr("no name"));
  EXPECT_THAT(said(kFormContentType, "--xyz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xyz--"), HasSubstr("no name"));
  EXPECT_THAT(said(kFormContentType, "--xyzzy\r\n"), HasSubstr("no end of a line"));
  std::string many;
  for (size_t i = 0; i <= kMostFormParts; ++i) many += "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n";
  EXPECT_THAT(said(kFormContentType, many + "--xyz--"), HasSubstr("more than 32 parts"));
  const std::string head = "--xyz\r\nX: " + std::string(kMostFormHeadBytes, 'x') + "\r\n\r\n\r\n--xyz--";
  EXPECT_THAT(said(kFormContentType, head), HasSubstr("no end of its head"));
}

}  // namespace
}  // namespace choral::serve
