#include "io/model_location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_config.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using choral::testing::TempDir;
using testing::GgufSpec;
using ::testing::HasSubstr;
using testing::safetensors_file;

std::string one_tensor() { return safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"); }

TEST(FileKind, IsWhatAFileBeginsAs) {
  const TempDir folder;
  const auto kind = [&](const char* name, const std::string& bytes) { return *file_kind(folder.write(name, bytes)); };
  EXPECT_EQ(kind("sha256-6a0746a1ec1a", GgufSpec().build()), FileKind::kGguf);
  EXPECT_EQ(kind("blob", one_tensor()), FileKind::kSafetensors);
  EXPECT_EQ(kind("model.gguf", "GGU"), FileKind::kOther);
  EXPECT_EQ(kind("empty", ""), FileKind::kOther);
  EXPECT_EQ(kind("cut", one_tensor().substr(0, 12)), FileKind::kOther) << "its header is longer than the file";
  EXPECT_EQ(kind("config.json", R"({"ab": "{ where a header begins"})"), FileKind::kOther);
  EXPECT_EQ(file_kind(folder / "absent").status().code(), Code::kNotFound);
}

TEST(LocateModel, TakesFilesOfAnyName) {
  const TempDir folder;
  const auto kind = [&](const char* name, const std::string& bytes) { return locate_model(folder.write(name, bytes))->kind; };
  EXPECT_EQ(kind("sha256-6a0746a1ec1a", GgufSpec().build()), ModelLocation::Kind::kGguf);
  EXPECT_EQ(kind("e3b0c44298fc", one_tensor()), ModelLocation::Kind::kSafetensors);
  const auto text = locate_model(folder.write("sha256-template", "{{ .System }}"));
  EXPECT_THAT(text.status().message(), HasSubstr("neither a GGUF nor a safetensors file; a model is a GGUF file, or a folder"));
}

TEST(LocateModel, OneFileOfAFolderLeadsToTheFolder) {
  const TempDir folder;
  const auto refused = [](const std::filesystem::path& path) { return std::string(load_model_config(path).status().message()); };
  EXPECT_THAT(refused(folder.write("alone/model.safetensors", one_tensor())), HasSubstr("give a model's whole folder"));
  folder.write("sharded/model.safetensors.index.json", "{}");
  folder.write("sharded/config.json", "{}");
  EXPECT_THAT(refused(folder.write("sharded/model-00001-of-00002.safetensors", one_tensor())),
              HasSubstr("give their folder, " + folder / "sharded"));
  folder.write("adapter/adapter_config.json", "{}");
  EXPECT_THAT(refused(folder.write("adapter/adapter_model.safetensors", one_tensor())),
              HasSubstr("--lora " + folder / "adapter"));
}

}  // namespace
}  // namespace choral::io
