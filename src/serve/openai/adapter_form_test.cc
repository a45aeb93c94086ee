#include "serve/openai/adapter_form.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kType = "multipart/form-data; boundary=xyz";

std::string part(std::string_view head, std::string_view content) {
  return fmt::format("--xyz\r\nContent-Disposition: form-data; {}\r\n\r\n{}\r\n", head, content);
}
Result<AdapterForm> read(const std::string& parts) {
  static std::string body;  // the form's files are views into it
  body = parts + "--xyz--\r\n";
  BodyNotes notes;
  return read_adapter_form(kType, body, notes);
}

TEST(AdapterForm, HasTheFieldsOfACallAndFiles) {
  const auto form =
      read(part("name=\"lora_name\"", "123") + part("name=\"load_inplace\"", "true") + part("name=\"expected_generation\"", "4") +
           part("name=\"files\"; filename=\"C:\\\\tmp\\\\adapter_config.json\"", "{}") +
           part("name=\"x\"; filename=\"sql/adapter_model.safetensors\"", "bytes\r\nof it"));
  ASSERT_TRUE(form.ok()) << form.status().message();
  EXPECT_EQ(form->call.name, "123") << "a name that is a number stays a name";
  EXPECT_TRUE(form->call.load_inplace);
  EXPECT_EQ(form->call.expected_generation, 4);
  ASSERT_EQ(form->files.size(), 2u);
  EXPECT_EQ(form->files[0].name, "adapter_config.json");
  EXPECT_EQ(form->files[1].name, "adapter_model.safetensors");
  EXPECT_EQ(form->files[1].content, "bytes\r\nof it");
}

TEST(AdapterForm, WhatIsWrongIsNamed) {
  const std::string file = part("name=\"f\"; filename=\"adapter_model.gguf\"", "x"), name = part("name=\"lora_name\"", "a");
  EXPECT_THAT(read(file).status().message(), HasSubstr("lora_name"));
  EXPECT_THAT(read(name).status().message(), HasSubstr("files"));
  EXPECT_THAT(read(name + name + file).status().message(), HasSubstr("twice"));
  EXPECT_THAT(read(name + file + part("name=\"pinned\"", "maybe")).status().message(), HasSubstr("pinned"));
  EXPECT_THAT(read(name + file + part("name=\"pinned\"", std::string(2000, 'x'))).status().message(), HasSubstr("file name"));
  EXPECT_FALSE(read(name + file + part("name=\"expected_generation\"", "-1")).ok());
  EXPECT_FALSE(is_form("application/json"));
  EXPECT_TRUE(is_form("Multipart/Form-Data ; boundary=a"));
}

}  // namespace
}  // namespace choral::serve
