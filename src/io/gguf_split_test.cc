// Models in several GGUF files, as llama-gguf-split leaves them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint.h"
#include "io/gguf.h"
#include "io/mapped_file.h"
#include "io/model_location.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using ::testing::AllOf;
using testing::GgufSpec;
using testing::GgufTensorSpec;
using ::testing::HasSubstr;
using testing::le;

GgufSpec part(uint16_t number, uint16_t count, std::vector<GgufTensorSpec> tensors, int32_t tensors_of_all = 2) {
  GgufSpec spec;
  if (number == 0)
    spec.metadata = {GgufSpec::kv_string("general.architecture", "qwen2"), GgufSpec::kv_u32("qwen2.block_count", 1)};
  spec.metadata.push_back(GgufSpec::kv("split.no", 2, le(number)));
  spec.metadata.push_back(GgufSpec::kv("split.count", 2, le(count)));
  spec.metadata.push_back(GgufSpec::kv("split.tensors.count", 5, le(tensors_of_all)));
  spec.tensors = std::move(tensors);
  return spec;
}

const GgufTensorSpec kNorm{"output_norm.weight", {4}, 0, std::string(16, 'n')};
const GgufTensorSpec kTable{"token_embd.weight", {4, 3}, 0, std::string(48, 't')};

class SplitModel : public ::testing::Test {
 protected:
  void write(int64_t number, const GgufSpec& spec) { folder_.write(name(number), spec.build()); }
  std::filesystem::path file(int64_t number) const { return folder_.path() / name(number); }
  std::string refusal(int64_t number) const { return std::string(GgufFile::open(file(number)).status().message()); }

  const choral::testing::TempDir folder_;

 private:
  static std::string name(int64_t number) { return GgufPart{.stem = "m.Q4_K_M", .count = 3}.name(number); }
};

TEST(GgufPart, IsReadFromANameInOneForm) {
  const auto part = gguf_part("m-00002-of-00003.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->stem, "m");
  EXPECT_EQ(part->number, 2);
  EXPECT_EQ(part->count, 3);
  EXPECT_EQ(part->name(3), "m-00003-of-00003.gguf");
  for (const char* other :
       {"m.gguf", "-00001-of-00003.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-0001-of-00003.gguf",
        "m_00001-of-00003.gguf", "m-00001-of-00003.safetensors", "m-00001-of-0000x.gguf"}) {
    EXPECT_FALSE(gguf_part(other)) << other;
  }
}

TEST_F(SplitModel, IsOneWhicheverFileIsNamed) {
  write(1, part(0, 3, {}));  // metadata by itself, as --no-tensor-first-split has it
  write(2, part(1, 3, {kTable}));
  write(3, part(2, 3, {kNorm}));
  for (const auto& path : {file(1), file(3), folder_.path()}) {
    const auto location = locate_model(path);
    ASSERT_TRUE(location.ok()) << location.status().message();
    ASSERT_EQ(location->kind, ModelLocation::Kind::kGguf);
    const auto checkpoint = Checkpoint::open(*location);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_THAT((*checkpoint)->description(), HasSubstr("qwen2, 2 tensors"));
    const auto table = (*checkpoint)->find("model.embed_tokens.weight"), norm = (*checkpoint)->find("model.norm.weight");
    ASSERT_TRUE(table.ok() && norm.ok());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(table->view.data), 48), kTable.data);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(norm->view.data), 16), kNorm.data);
    (*checkpoint)->release("model.embed_tokens.weight");
    EXPECT_TRUE((*checkpoint)->check_unchanged().ok());
  }
}

TEST_F(SplitModel, NoticesAChangeOfAnyFile) {
  write(1, part(0, 3, {kNorm}));
  write(2, part(1, 3, {}));
  write(3, part(2, 3, {kTable}));
  const auto model = GgufFile::open(file(1));
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::filesystem::resize_file(file(3), 100);
  EXPECT_EQ((*model)->check_unchanged().code(), Code::kUnavailable);
}

TEST_F(SplitModel, IsRefusedUnlessWhole) {
  write(1, part(0, 3, {kNorm}));
  write(2, part(1, 3, {kTable}));
  EXPECT_EQ(GgufFile::open(file(1)).status().code(), Code::kNotFound);
  EXPECT_THAT(refusal(1), AllOf(HasSubstr("one of 3 files"), HasSubstr("m.Q4_K_M-00003-of-00003.gguf is missing")));
  write(3, part(2, 3, {kTable}));
  EXPECT_THAT(refusal(1), HasSubstr("'token_embd.weight' stands in two files of the model, 2 and 3"));
  write(3, part(1, 3, {}));
  EXPECT_THAT(refusal(1), HasSubstr("says that it is file 2 of 3, by its name it is file 3 of 3"));
  write(3, part(2, 4, {}));
  EXPECT_THAT(refusal(1), HasSubstr("file 3 of 4"));
  write(3, GgufSpec());
  EXPECT_THAT(refusal(1), HasSubstr("split.no is missing"));
  write(3, part(2, 3, {}));
  EXPECT_TRUE(GgufFile::open(file(1)).ok());
  write(1, part(0, 3, {kNorm}, 7));
  EXPECT_THAT(refusal(1), HasSubstr("hold 2 tensors, and should hold 7"));
  folder_.write("other.gguf", part(0, 3, {kNorm}).build());
  EXPECT_THAT(std::string(GgufFile::open(folder_.path() / "other.gguf").status().message()),
              HasSubstr("give it its name back, NAME-00001-of-00003.gguf"));
}

TEST_F(SplitModel, IsNoAdapter) {
  write(1, part(0, 3, {kNorm}));
  const auto bytes = MappedFile::open(file(1));
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_THAT(std::string(GgufFile::parse(*bytes).status().message()), HasSubstr("one of 3 files"));
}

}  // namespace
}  // namespace choral::io
