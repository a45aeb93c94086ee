#include "io/stacked_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"

namespace choral::io {
namespace {

using choral::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kExperts = "model.layers.3.mlp.experts.";

// Two experts, n = 2 rows of k = 32; element i of every tensor is i.
class File {
 public:
  File& add(const std::string& name, DType dtype, const Shape& shape) {
    auto& tensor = tensors_.emplace_back(name, *Tensor::allocate(dtype, shape)).second;
    if (dtype == DType::kF32) std::iota(tensor.as<float>().begin(), tensor.as<float>().end(), 0.0F);
    if (dtype == DType::kU8) std::iota(tensor.as<uint8_t>().begin(), tensor.as<uint8_t>().end(), uint8_t{0});
    return *this;
  }
  Result<std::shared_ptr<const Checkpoint>> open() {
    std::vector<TensorToWrite> all;
    for (const auto& [name, tensor] : tensors_) all.push_back({name, tensor.view()});
    CHORAL_CHECK(write_safetensors(folder_.path() / "model.safetensors", all).ok(), "the file is written");
    return Checkpoint::open(folder_.path());
  }

 private:
  TempDir folder_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

// A layer's own, which are no part of an MLP: Gemma 4's, each as it is used.
const std::string kOfLayer = "model.layers.3.experts.";

float float_at(const SourceTensor& tensor, int64_t i) {
  float value;
  std::memcpy(&value, tensor.view.data + i * sizeof value, sizeof value);
  return value;
}

TEST(StackedExperts, InAnMlpWithoutBiasesTheyLieAsTheyAreMultiplied) {
  const std::string layer = "model.language_model.layers.3.mlp.";
  File file;
  const auto checkpoint = file.add(layer + "experts.gate_up_proj", DType::kF32, {2, 4, 3})
                              .add(layer + "experts.down_proj", DType::kF32, {2, 3, 2})
                              .open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto first_of = [&](const std::string& name, const Shape& shape) {
    const auto tensor = (*checkpoint)->find(kExperts + name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(tensor->view.shape, shape) << name;
    EXPECT_FALSE(tensor->transposed);
    return float_at(*tensor, 0);
  };
  EXPECT_EQ(first_of("0.gate_proj.weight", {2, 3}), 0);
  EXPECT_EQ(first_of("0.up_proj.weight", {2, 3}), 6);
  EXPECT_EQ(first_of("1.gate_proj.weight", {2, 3}), 12);
  EXPECT_EQ(first_of("1.up_proj.weight", {2, 3}), 18);
  EXPECT_EQ(first_of("1.down_proj.weight", {3, 2}), 6);

  File odd;
  const auto refused = odd.add(layer + "experts.gate_up_proj", DType::kF32, {2, 3, 3}).open();
  EXPECT_THAT(refused.status().message(), HasSubstr("has 3 rows, of which half are the gate's"));
}

TEST(StackedExperts, ThoseOfALayerLieAsTheyAreUsed) {
  File file;
  const auto checkpoint =
      file.add(kOfLayer + "down_proj", DType::kF32, {2, 32, 2}).add(kOfLayer + "gate_up_proj", DType::kF32, {2, 4, 32}).open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT((*checkpoint)->names(), ElementsAre(kOfLayer + "0.down_proj.weight", kOfLayer + "0.gate_up_proj.weight",
                                                  kOfLayer + "1.down_proj.weight", kOfLayer + "1.gate_up_proj.weight"));
  const auto weight = *(*checkpoint)->find(kOfLayer + "1.gate_up_proj.weight");
  EXPECT_EQ(weight.view.shape, (Shape{4, 32}));
  EXPECT_FALSE(weight.transposed);
  EXPECT_EQ(float_at(weight, 0), 128);
}

TEST(StackedExperts, EachExpertHasItsPart) {
  File file;
  const auto checkpoint = file.add(kExperts + "down_proj", DType::kF32, {2, 32, 2})
                              .add(kExperts + "down_proj_bias", DType::kF32, {2, 2})
                              .add(kExperts + "gate_up_proj_bias", DType::kF32, {2, 2})
                              .add(kExperts + "gate_up_proj_blocks", DType::kU8, {2, 2, 1, 16})
                              .add(kExperts + "gate_up_proj_scales", DType::kU8, {2, 2, 1})
                              .open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT((*checkpoint)->names(),
              ElementsAre(kExperts + "0.down_proj.bias", kExperts + "0.down_proj.weight", kExperts + "0.gate_up_proj.bias",
                          kExperts + "0.gate_up_proj.weight_packed", kExperts + "0.gate_up_proj.weight_scale",
                          kExperts + "1.down_proj.bias", kExperts + "1.down_proj.weight", kExperts + "1.gate_up_proj.bias",
                          kExperts + "1.gate_up_proj.weight_packed", kExperts + "1.gate_up_proj.weight_scale"));
  const auto find = [&](const std::string& name) { return *(*checkpoint)->find(kExperts + name); };
  const auto weight = find("1.down_proj.weight");
  EXPECT_EQ(weight.view.shape, (Shape{2, 32}));
  EXPECT_TRUE(weight.transposed);
  EXPECT_EQ(float_at(weight, 0), 64);
  const auto bias = find("1.gate_up_proj.bias");
  EXPECT_EQ(bias.view.shape, Shape{2});
  EXPECT_FALSE(bias.transposed);
  EXPECT_EQ(float_at(bias, 1), 3);
  const auto packed = find("1.gate_up_proj.weight_packed");
  EXPECT_EQ(packed.view.shape, (Shape{2, 16}));
  EXPECT_FALSE(packed.transposed);
  EXPECT_EQ(static_cast<int>(packed.view.row(1)[5]), 32 + 16 + 5);
  const auto scales = find("1.gate_up_proj.weight_scale");
  EXPECT_EQ(scales.view.shape, (Shape{2, 1}));
  EXPECT_EQ(static_cast<int>(scales.view.data[1]), 3);
  for (const auto& name : (*checkpoint)->names()) (*checkpoint)->release(name);
}

TEST(StackedExperts, GranitesStandBesideTheirRouter) {
  File file;
  const std::string block = "model.layers.3.block_sparse_moe.";
  const auto checkpoint = file.add(block + "input_linear.weight", DType::kF32, {2, 4, 3})
                              .add(block + "output_linear.weight", DType::kF32, {2, 3, 2})
                              .add(block + "router.layer.weight", DType::kF32, {2, 3})
                              .open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT((*checkpoint)->names(), ElementsAre(block + "experts.0.down_proj.weight", block + "experts.0.gate_up_proj.weight",
                                                  block + "experts.1.down_proj.weight", block + "experts.1.gate_up_proj.weight",
                                                  block + "router.weight"));
  const auto weight = *(*checkpoint)->find(block + "experts.1.gate_up_proj.weight");
  EXPECT_EQ(weight.view.shape, (Shape{4, 3}));
  EXPECT_FALSE(weight.transposed);
  EXPECT_EQ(float_at(weight, 0), 12);
  File wrong;
  const auto status = wrong.add(block + "input_linear.weight", DType::kF32, {4, 3}).open().status();
  EXPECT_THAT(status.message(), HasSubstr("input_linear.weight' has shape [4, 3]"));
}

TEST(StackedExperts, Llama4sHaveNoBiases) {
  File file;
  const std::string experts = "model.layers.3.feed_forward.experts.";
  const auto checkpoint = file.add(experts + "gate_up_proj", DType::kF32, {2, 3, 4}).open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT((*checkpoint)->names(), ElementsAre(experts + "0.gate_up_proj.weight", experts + "1.gate_up_proj.weight"));
  const auto weight = *(*checkpoint)->find(experts + "1.gate_up_proj.weight");
  EXPECT_EQ(weight.view.shape, (Shape{4, 3}));
  EXPECT_TRUE(weight.transposed);
}

TEST(StackedExperts, OfNoMlpAndWithoutBiasesTheyAreAnotherFamilys) {
  File file;
  const auto checkpoint = file.add("model.layers.3.moe.experts.down_proj", DType::kF32, {2, 32, 2}).open();
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT((*checkpoint)->names(), ElementsAre("model.layers.3.moe.experts.down_proj"));
}

TEST(StackedExperts, ShapesThatCannotBeAreNamed) {
  const auto refusal = [](const char* name, const Shape& shape) {
    File file;
    file.add(kExperts + name, DType::kU8, shape);
    if (std::string(name) != "down_proj_bias") file.add(kExperts + "down_proj_bias", DType::kU8, {2, 2});
    return file.open().status();
  };
  for (const auto& [name, shape] : {std::pair("down_proj", Shape{2, 2}),
                                    {"down_proj_blocks", Shape{2, 2, 16}},
                                    {"down_proj_scales", Shape{2}},
                                    {"down_proj_bias", Shape{2, 2, 2}},
                                    {"down_proj_bias", Shape{4097, 1}}}) {
    const Status status = refusal(name, shape);
    EXPECT_EQ(status.code(), Code::kCorrupt) << name;
    EXPECT_THAT(status.message(), HasSubstr(std::string(name) + "' has shape " + shape.to_string()));
  }
}

TEST(StackedExperts, OnlyFloatsLieTransposed) {
  File file;
  const auto checkpoint =
      file.add(kExperts + "down_proj", DType::kU8, {2, 32, 2}).add(kExperts + "down_proj_bias", DType::kF32, {2, 2}).open();
  ASSERT_TRUE(checkpoint.ok());
  const Status status = (*checkpoint)->find(kExperts + "0.down_proj.weight").status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr(kExperts + "down_proj' is stored as"));
}

TEST(StackedExperts, ATensorTwiceIsCorrupt) {
  File file;
  const auto status = file.add(kExperts + "down_proj_bias", DType::kF32, {2, 2})
                          .add(kExperts + "1.down_proj.bias", DType::kF32, {2})
                          .open()
                          .status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("1.down_proj.bias' stands in"));
}

TEST(StackedExperts, ManyNamesAreRefused) {
  File file;
  for (int layer = 0; layer < 250; ++layer) {
    file.add(fmt::format("model.layers.{}.mlp.experts.down_proj_bias", layer), DType::kU8, {4096, 1});
  }
  EXPECT_EQ(file.open().status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace choral::io
