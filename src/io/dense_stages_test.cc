// Dense layers behind a pooling, as modules.json has them, and their tensors in the checkpoint.
#include "io/dense_stages.h"

#include <gmock/gmock.h>

#include "io/checkpoint.h"
#include "io/model_config.h"
#include "io/safetensors_writer.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using ::testing::HasSubstr;

std::string module_line(std::string_view path, std::string_view type) {
  return fmt::format(R"({{"path": "{}", "type": "sentence_transformers.models.{}"}})", path, type);
}

class DenseStages : public ::testing::Test {
 protected:
  Result<std::vector<DenseStage>> stages(std::string_view path, std::string_view type) {
    folder_.write("modules.json", fmt::format("[{}, {}, {}]", module_line("", "Transformer"), module_line(path, type),
                                              module_line("9", "Normalize")));
    return read_dense_stages(folder_.path());
  }

  choral::testing::TempDir folder_;
};

TEST_F(DenseStages, AreReadWithWhatTheyLeaveOut) {
  EXPECT_TRUE(read_dense_stages(folder_.path())->empty());
  folder_.write("2_Dense/config.json", R"({"in_features": 8, "out_features": 4})");
  const auto read = stages("2_Dense", "Dense");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read->size(), 1U);
  EXPECT_EQ(read->front().in, 8);
  EXPECT_EQ(read->front().out, 4);
  EXPECT_TRUE(read->front().bias);
  EXPECT_TRUE(read->front().is_tanh);
  EXPECT_EQ(read->front().weights, folder_.path() / "2_Dense" / "model.safetensors");
}

TEST_F(DenseStages, WhatIsNoneIsRefusedByName) {
  EXPECT_THAT(stages("2_CNN", "CNN").status().message(), HasSubstr("models.CNN"));
  for (const char* path : {"../other", "", "a/b", ".hidden"})
    EXPECT_EQ(stages(path, "Dense").status().code(), Code::kCorrupt) << path;
  folder_.write("2_Dense/config.json", R"({"in_features": 8, "out_features": 4, "activation_function": "torch.nn.ReLU"})");
  EXPECT_THAT(stages("2_Dense", "Dense").status().message(), HasSubstr("torch.nn.ReLU"));
  folder_.write("2_Dense/config.json", R"({"in_features": 0, "out_features": 4})");
  EXPECT_THAT(stages("2_Dense", "Dense").status().message(), HasSubstr("in_features"));
  folder_.write("modules.json", "{");
  EXPECT_EQ(read_dense_stages(folder_.path()).status().code(), Code::kCorrupt);
}

TEST_F(DenseStages, AreAtMostEight) {
  folder_.write("d/config.json", R"({"in_features": 8, "out_features": 8})");
  std::string list = module_line("d", "Dense");
  for (int i = 1; i < 9; ++i) list += ", " + module_line("d", "Dense");
  folder_.write("modules.json", "[" + list + "]");
  EXPECT_EQ(read_dense_stages(folder_.path()).status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace choral::io
