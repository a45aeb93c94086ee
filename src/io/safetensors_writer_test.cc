#include "io/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"

namespace choral::io {
namespace {

TEST(SafetensorsWriter, TheReaderFindsWhatWasWritten) {
  const choral::testing::TempDir dir;
  auto a = *Tensor::allocate(DType::kF32, {2, 3});
  auto b = *Tensor::allocate(DType::kBF16, {5});
  for (int i = 0; i < 6; ++i) a.as<float>()[i] = static_cast<float>(i) - 2.5f;
  for (int i = 0; i < 5; ++i) b.as<uint16_t>()[i] = static_cast<uint16_t>(0x3F80 + i);
  const TensorToWrite tensors[] = {{"z.weight", a.view()}, {"a \"quoted\" näme", b.view()}};
  const auto path = dir.path() / "x.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ((*file)->entries().size(), 2u);
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  for (const auto& tensor : tensors) {
    const auto found = (*file)->find(tensor.name);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->dtype, tensor.view.dtype);
    EXPECT_EQ(found->shape, tensor.view.shape);
    EXPECT_EQ(std::memcmp(found->data, tensor.view.data, tensor.view.size_bytes()), 0);
  }
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const choral::testing::TempDir dir;
  const auto a = *Tensor::allocate(DType::kF32, {1});
  const auto q = *Tensor::allocate(DType::kQ8_0, {1, 32});
  const auto path = dir.path() / "x.safetensors";
  const TensorToWrite twice[] = {{"a", a.view()}, {"a", a.view()}};
  EXPECT_EQ(write_safetensors(path, twice).code(), Code::kInvalidArgument);
  const TensorToWrite block[] = {{"q", q.view()}};
  EXPECT_EQ(write_safetensors(path, block).code(), Code::kUnsupported);
  const TensorToWrite name[] = {{"\xFF", a.view()}};
  EXPECT_EQ(write_safetensors(path, name).code(), Code::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing half-written stays";
  EXPECT_FALSE(write_safetensors(dir.path() / "no" / "such" / "x.safetensors", std::span(twice, 1)).ok());
}

}  // namespace
}  // namespace choral::io
