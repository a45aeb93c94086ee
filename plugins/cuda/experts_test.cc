// What a call of experts' operators may ask for, and that a refused one has changed nothing.
#include <algorithm>

#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kCols = 64, kRows = 16;

class ExpertsTest : public DeviceTest {};

// W is `value` times the identity, as far as it goes.
choral_packed* diagonal(OpenDevice& device, float value) {
  std::vector<float> w(kRows * kCols);
  for (int64_t i = 0; i < kRows; ++i) w[static_cast<size_t>(i * kCols + i)] = value;
  const choral_weight_part part{w.data(), kRows, kCols * 4, nullptr};
  choral_weight weight{};
  weight.header = CHORAL_HEADER(choral_weight);
  weight.stored_dtype = weight.dtype = CHORAL_F32;
  weight.cols = kCols;
  weight.parts = &part;
  weight.part_count = 1;
  choral_packed* packed = nullptr;
  EXPECT_FINE(plugin().weights->prepack(device.handle, device.stream, &weight, &packed, nullptr));
  return packed;
}

choral_matmul_args product(const choral_packed* weight, void* x, void* y) {
  choral_matmul_args args{};
  args.header = CHORAL_HEADER(choral_matmul_args);
  args.weight = weight;
  args.x = matrix(x, 1, kCols);
  args.y = matrix(y, 1, kRows);
  return args;
}

choral_grouped_matmul_args group(const choral_matmul_args* products, int64_t count) {
  return {CHORAL_HEADER(choral_grouped_matmul_args), products, count};
}

// A host of a later version has longer products; they lie as far apart as the first one says.
TEST_F(ExpertsTest, ProductsLieAsFarApartAsTheHostSays) {
  struct Longer {
    choral_matmul_args args;
    int64_t of_a_later_minor[3] = {-1, -1, -1};
  };
  OpenDevice device;
  choral_packed* weights[] = {diagonal(device, 2), diagonal(device, 3)};
  void* x = device.upload(std::vector<float>(kCols, 1));
  void* y = device.allocate(2 * kRows * sizeof(float));
  Longer products[2];
  for (int i = 0; i < 2; ++i) {
    products[i].args = product(weights[i], x, static_cast<float*>(y) + i * kRows);
    products[i].args.header.struct_size = sizeof(Longer);
  }
  const auto args = group(&products[0].args, 2);
  EXPECT_EQ(device.run("grouped_matmul", &args).code, 0);
  const auto got = device.download<float>(y, 2 * kRows);
  EXPECT_THAT(std::vector<float>(got.begin(), got.begin() + kRows), Each(2.0F));
  EXPECT_THAT(std::vector<float>(got.begin() + kRows, got.end()), Each(3.0F));
  for (choral_packed* packed : weights) plugin().weights->release(device.handle, packed);
}

TEST_F(ExpertsTest, AGroupWithAProductThatDoesNotFitMultipliesNone) {
  OpenDevice device;
  choral_packed* weight = diagonal(device, 2);
  void* x = device.upload(std::vector<float>(kCols, 1));
  void* y = device.allocate(2 * kRows * sizeof(float));
  choral_matmul_args products[] = {product(weight, x, y), product(weight, x, static_cast<float*>(y) + kRows)};
  const auto args = group(products, 2);
  products[1].x.cols = kCols - 1;
  EXPECT_THAT(device.run("grouped_matmul", &args).message, AllOf(HasSubstr("grouped_matmul"), HasSubstr("do not fit")));
  products[1] = products[0];
  products[1].weight = nullptr;
  EXPECT_THAT(device.run("grouped_matmul", &args).message, HasSubstr("the weight is missing"));
  products[1] = products[0];
  products[1].y.dtype = CHORAL_BF16;
  EXPECT_EQ(device.run("grouped_matmul", &args).code, CHORAL_UNSUPPORTED);
  const auto missing = group(nullptr, 2), negative = group(products, -1), none = group(nullptr, 0);
  EXPECT_THAT(device.run("grouped_matmul", &missing).message, HasSubstr("the list of products is missing"));
  EXPECT_EQ(device.run("grouped_matmul", &negative).code, CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(device.run("grouped_matmul", &none).code, 0);
  EXPECT_THAT(device.download<float>(y, 2 * kRows), Each(0.0F));
  plugin().weights->release(device.handle, weight);
}

TEST_F(ExpertsTest, WhatDoesNotFitIsRefused) {
  OpenDevice device;
  void* memory = device.allocate(4096);
  const choral_swigluoai_args narrow{CHORAL_HEADER(choral_swigluoai_args), matrix(memory, 2, 8), matrix(memory, 2, 8), 1, 1};
  EXPECT_THAT(device.run("swigluoai_and_mul", &narrow).message, HasSubstr("x is twice as wide as y"));
  const choral_scale_args nothing{CHORAL_HEADER(choral_scale_args), matrix(nullptr, 2, 8), 2, 0};
  EXPECT_THAT(device.run("scale", &nothing).message, HasSubstr("y is missing"));
  choral_moe_combine_args combine{};
  combine.header = CHORAL_HEADER(choral_moe_combine_args);
  combine.x = matrix(memory, 3, 8);
  combine.weights = matrix(memory, 2, 2);
  combine.y = matrix(memory, 2, 8);
  EXPECT_THAT(device.run("moe_combine", &combine).message, HasSubstr("the list of places is missing"));
  combine.places = static_cast<const int32_t*>(memory);
  combine.weights.rows = 1;
  EXPECT_THAT(device.run("moe_combine", &combine).message, HasSubstr("do not fit"));
}

TEST_F(ExpertsTest, PlacesAreCheckedOnTheDevice) {
  OpenDevice device;
  void* x = device.upload(std::vector<float>(16, 1));
  void* places = device.upload(std::vector<int32_t>{0, 2});
  choral_moe_combine_args combine{};
  combine.header = CHORAL_HEADER(choral_moe_combine_args);
  combine.x = matrix(x, 2, 8);
  combine.places = static_cast<const int32_t*>(places);
  combine.weights = matrix(device.upload(std::vector<float>(2, 1)), 1, 2);
  combine.y = matrix(device.allocate(8 * sizeof(float)), 1, 8);
  EXPECT_EQ(device.run("moe_combine", &combine).code, 0);
  const auto failed = seen(plugin().memory->stream_synchronize(device.handle, device.stream));
  EXPECT_EQ(failed.code, CHORAL_INVALID_ARGUMENT);
  EXPECT_THAT(failed.message, AllOf(HasSubstr("an id that is no row"), HasSubstr("moe_combine")));
}

}  // namespace
}  // namespace choral_cuda
